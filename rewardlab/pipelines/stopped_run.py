"""The error of a run that had to stop, with the command that continues it."""

from pathlib import Path

from rewardlab.errors import RewardlabError
from rewardlab.run_state import resume_command


def stopped_run(reason: str, out: Path, checkpoint: Path | None) -> RewardlabError:
    """Return the error for a policy run in the directory `out` that continues from `checkpoint`, if there is one."""
    if checkpoint is not None:
        return RewardlabError(f"{reason}. The run continues with: {resume_command(out, checkpoint)}")
    return RewardlabError(f"{reason}. There is no checkpoint yet; the run begins anew with: {resume_command(out)}")
