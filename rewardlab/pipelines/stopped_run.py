"""The command that continues a run, and the error of a run that had to stop."""

import shlex
from pathlib import Path

from rewardlab.errors import RewardlabError
from rewardlab.run_state import resume_override


def stopped_run(reason: str, out: Path, checkpoint: Path | None) -> RewardlabError:
    """Return the error for a policy run in the directory `out` that continues from `checkpoint`, if there is one."""
    if checkpoint is not None:
        return RewardlabError(f"{reason}. The run continues with: {resume_command(out, checkpoint)}")
    return RewardlabError(f"{reason}. There is no checkpoint yet; the run begins anew with: {resume_command(out)}")


def resume_command(out: Path, checkpoint: Path | None = None) -> str:
    """Return the command that continues the run in the directory `out`, or begins it anew without a checkpoint."""
    resume = [] if checkpoint is None else [resume_override(checkpoint)]
    return shlex.join(["rewardlab", "run", str(out / "config.yaml"), *resume])
