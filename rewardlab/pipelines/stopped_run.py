"""The error of a run on Ray that had to stop: what happened, and the command that continues the run."""

import re
import shlex
from pathlib import Path

from rewardlab.config import text_override
from rewardlab.errors import RewardlabError
from rewardlab.reports.run_log import HISTORY


def stopped_run(reason: str, out: Path, checkpoint: Path | None) -> RewardlabError:
    """Return the error for a policy run in the directory `out` that continues from `checkpoint`, if there is one."""
    config = str(out / "config.yaml")
    if checkpoint is not None:
        return RewardlabError(f"{reason}. The run continues with: {_command(config, 'runner.resume_dir', checkpoint)}")
    # A run does not begin in a directory that has the metrics of another one.
    rename = ("runner.logger.experiment_name", f"{out.name}_2") if (out / HISTORY).exists() else ()
    return RewardlabError(
        f"{reason}. There is no checkpoint yet; the run begins anew with: {_command(config, *rename)}"
    )


def _command(config: str, key: str | None = None, value: object = None) -> str:
    words = ["rewardlab", "run", config]
    if key is not None:
        plain = re.fullmatch(r"[\w./-]+", str(value)) is not None
        words.append(f"{key}={value}" if plain else text_override(key, str(value)))
    return shlex.join(words)
