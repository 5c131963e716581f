"""No input brings a traceback, takes long, takes much memory, runs code or reaches the terminal as a code.

The suite tries each target for five seconds. `make fuzz SECONDS=600 SEED=3` tries them for longer and with other random
numbers; `make fuzz CASE=configs:3:17` repeats a case.
"""

import itertools
import os
from pathlib import Path

import fuzz_checkpoints
import fuzz_commands
import fuzz_configs
import fuzz_environments
import fuzz_episodes
import fuzz_imports
import fuzz_pickles
import fuzz_recordings
import pytest
from fuzzing import Target, fuzz

TARGETS = {
    target.name: target
    for target in (
        fuzz_configs.TARGET,
        fuzz_commands.TARGET,
        fuzz_episodes.TARGET,
        fuzz_checkpoints.TARGET,
        fuzz_pickles.TARGET,
        fuzz_recordings.TARGET,
        fuzz_imports.TARGET,
        fuzz_environments.TARGET,
    )
}
SECONDS = float(os.environ.get("FUZZ_SECONDS") or 30) / len(TARGETS)
SEED = os.environ.get("FUZZ_SEED") or "0"
CASE = os.environ.get("FUZZ_CASE") or None


@pytest.mark.usefixtures("without_drawing")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_no_input_does_harm(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "FUZZ_FAILURES" not in os.environ:
        monkeypatch.setenv("FUZZ_FAILURES", str(Path.cwd() / "fuzz_failures"))
    numbers = itertools.count()
    seed = SEED
    if CASE is not None:
        name, seed, number = CASE.split(":")
        if name != target.name:
            pytest.skip("another target's case")
        numbers = itertools.count(int(number))
    count = fuzz(target, tmp_path, seed, 0 if CASE else SECONDS, numbers)
    print(f"{target.name}: {count} cases")
    assert count > 0
