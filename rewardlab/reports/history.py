"""metrics.jsonl of a run: one row of figures per iteration, epoch or number of episodes."""

import json
from collections.abc import Sequence
from pathlib import Path

from rewardlab.data.atomic import replace_file
from rewardlab.errors import DataError
from rewardlab.input_files import read_file

HISTORY = "metrics.jsonl"
KEYS = ("iteration",)  # in every row: iterations of a policy, optimizer steps of a classifier, episodes of a collection
POLICY_KEYS = (*KEYS, "env_steps")


def read_history(path: str | Path, keys: Sequence[str] = POLICY_KEYS) -> list[dict[str, float]]:
    """Read the rows of metrics.jsonl, which all have these `keys`. A last row that a kill cut off is left out."""
    try:
        lines = read_file(path).decode(errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict) or not all(type(row.get(key)) in (int, float) for key in keys):
            names = " and ".join(map(repr, keys))
            kind = "a number" if len(keys) == 1 else "two numbers"
            raise DataError(f"{path}, line {number}: expected an object with {names}, {kind}")
        rows.append(row)
    return rows


def forget_after(directory: Path, iteration: int) -> None:
    """Drop the rows after an iteration: a resumed run writes them again."""
    path = directory / HISTORY
    if path.exists():
        rows = [row for row in read_history(path, KEYS) if row["iteration"] <= iteration]
        replace_file(path, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
