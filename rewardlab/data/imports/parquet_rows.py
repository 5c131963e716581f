"""Rows of parquet files, read in order with the memory of one episode."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.data.episodes import Array
from rewardlab.data.packages import need
from rewardlab.errors import DataError
from rewardlab.input_files import check_is_file
from rewardlab.limits import excerpt, listed

WHAT = "importing a LeRobotDataset"
_BATCH = 256  # rows


def open_parquet(path: Path) -> Any:
    """Return an open pyarrow.parquet.ParquetFile."""
    parquet = need("pyarrow.parquet", WHAT)
    try:
        check_is_file(path)
        return parquet.ParquetFile(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:  # pyarrow's own errors are these
        raise DataError(f"{path} is damaged or no parquet file ({excerpt(error)})") from error


def read_columns(path: Path, names: Sequence[str] | None = None) -> Any:
    """Return a table of the columns of a file that are in `names`, all by default."""
    file = open_parquet(path)
    with file:
        found = file.schema_arrow.names
        try:
            return file.read([name for name in found if names is None or name in names])
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is damaged ({excerpt(error)})") from error


def as_array(column: Any, name: str) -> Array:
    """Return a column of numbers as an array [rows] or, of lists, [rows, numbers]; nested lists become one."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    rows = len(column)
    flat = column
    while True:
        if isinstance(flat.type, pa.BaseExtensionType):
            flat = flat.storage
        elif pa.types.is_list(flat.type) or pa.types.is_large_list(flat.type) or pa.types.is_fixed_size_list(flat.type):
            flat = flat.flatten()
        else:
            break
    if flat.null_count or column.null_count:
        raise DataError(f"'{name}' has empty cells")
    values = flat.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "biuf":
        raise DataError(f"'{name}' is {flat.type}; expected numbers")
    if flat is column or rows == 0:
        return np.asarray(values)
    if len(values) % rows:
        raise DataError(f"'{name}' has lists of different lengths")
    return np.asarray(values.reshape(rows, -1))


class EpisodeRows:
    """The rows of a parquet file by episode; fastest if the episodes are asked for in the order of the file."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._file = open_parquet(path)
        names = self._file.schema_arrow.names
        if "episode_index" not in names:
            raise DataError(f"{path}: no column 'episode_index'; found {listed(names)}")
        self._columns = [name for name in names if name in columns]
        self._of_row = as_array(read_columns(path, ["episode_index"])["episode_index"], "episode_index")
        groups = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._group_starts = np.concatenate([[0], np.cumsum(groups)]).astype(int)
        self._batches: Iterator[Any] = iter(())
        self._position = -1  # of the first row that is not read yet
        self._rest: Any = None  # rows before it that are read, and not asked for yet

    def close(self) -> None:
        self._file.close()

    def read(self, episode: int) -> Any:
        """Return the rows of an episode as a table."""
        found = np.flatnonzero(self._of_row == episode)
        if not len(found):
            raise DataError(f"{self.path} has no rows of episode {episode}")
        first, stop = int(found[0]), int(found[-1]) + 1
        if stop - first != len(found):
            raise DataError(f"{self.path}: the rows of episode {episode} are not in one piece")
        try:
            return self._rows(first, stop)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path} is damaged ({excerpt(error)})") from error

    def _rows(self, first: int, stop: int) -> Any:
        import pyarrow as pa

        pieces, have = self._continue_at(first)
        while have < stop - first:
            batch = pa.Table.from_batches([next(self._batches)])
            start, self._position = self._position, self._position + len(batch)
            if self._position > first:
                piece = batch.slice(max(first - start, 0))
                pieces.append(piece)
                have += len(piece)
        table = pa.concat_tables(pieces)
        self._rest = table.slice(stop - first)
        return table.slice(0, stop - first)

    def _continue_at(self, first: int) -> tuple[list[Any], int]:
        """Make `_batches` begin at or before a row, and return what is read already from that row on."""
        group = int(np.searchsorted(self._group_starts, first, side="right")) - 1
        begun = self._position - (0 if self._rest is None else len(self._rest))
        if self._position < 0 or first < begun or self._group_starts[group] > self._position:
            groups = range(group, self._file.num_row_groups)
            self._batches = self._file.iter_batches(_BATCH, row_groups=groups, columns=self._columns)
            self._position, self._rest = int(self._group_starts[group]), None
            return [], 0
        if self._rest is None or first >= self._position:
            return [], 0
        rest = self._rest.slice(first - begun)
        return [rest], len(rest)
