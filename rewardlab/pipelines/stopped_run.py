"""The error of a run on Ray that had to stop: what happened, and the command that continues the run."""

import shlex
from pathlib import Path

from rewardlab.errors import RewardlabError
from rewardlab.run_state import resume_override


def stopped_run(reason: str, out: Path, checkpoint: Path | None) -> RewardlabError:
    """Return the error for a policy run in the directory `out` that continues from `checkpoint`, if there is one."""
    config = str(out / "config.yaml")
    if checkpoint is not None:
        return RewardlabError(f"{reason}. The run continues with: {_command(config, checkpoint)}")
    return RewardlabError(f"{reason}. There is no checkpoint yet; the run begins anew with: {_command(config)}")


def _command(config: str, checkpoint: Path | None = None) -> str:
    resume = [] if checkpoint is None else [resume_override(checkpoint)]
    return shlex.join(["rewardlab", "run", config, *resume])
