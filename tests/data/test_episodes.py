import re

import numpy as np
import pytest

from rewardlab.data import Episode
from rewardlab.errors import DataError

WRONG = {
    "float images": ("observation.images.base_camera", lambda a: a.astype(np.float32) / 255, "uint8 [rows, height"),
    "CHW images": ("observation.images.base_camera", lambda a: np.moveaxis(a, -1, 1), "[6, 3, 8, 8]"),
    "one image": ("observation.images.base_camera", lambda a: a[0], "[8, 8, 3]"),
    "NaN in a state": ("observation.state", lambda a: np.where(np.arange(6)[:, None] == 3, np.nan, a), "nan at step 3"),
    "infinite reward": ("reward", lambda a: a + np.float32(np.inf), "inf at step 0"),
    "float64 state": ("observation.state", lambda a: a.astype(np.float64), "float32"),
    "labels shorter than the frames": ("success", lambda a: a[:-1], "has 6 rows, the labels ('success') have 5"),
    "float labels": ("success", lambda a: a.astype(np.float32), "expected bool"),
    "text": ("note", lambda a: np.array(["x"] * 6), "expected numbers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_column_is_named_with_what_was_found_and_expected(make_episode, case):
    name, spoil, message = WRONG[case]
    columns = dict(make_episode().columns)
    columns[name] = spoil(columns.get(name))
    with np.errstate(invalid="ignore"), pytest.raises(DataError, match=re.escape(message)) as error:
        Episode.from_columns(
            {k: v.astype(np.float32) if "NaN" in case and k == name else v for k, v in columns.items()}
        )
    assert f"'{name}'" in str(error.value) or "labels" in case


def test_no_rows_and_no_labels_are_errors(make_episode):
    columns = make_episode().columns
    with pytest.raises(DataError, match="no rows"):
        Episode.from_columns({name: column[:0] for name, column in columns.items()})
    with pytest.raises(DataError, match="no column 'success'; found reward"):
        Episode.from_columns({"reward": columns["reward"]})


def test_facts_tell_success_in_any_frame_from_success_at_the_end(make_episode):
    facts = make_episode().facts
    assert (facts.success, facts.success_at_end, facts.length) == (True, False, 6)
    assert facts.cameras == {"base_camera": (8, 8), "wrist_camera": (8, 10)}
    assert not make_episode(success=False).facts.success


def test_steps_and_columns_are_the_same_numbers(make_episode):
    episode = make_episode()
    steps = episode.steps
    assert steps.batch_size == (6,)
    found = {".".join(key) if isinstance(key, tuple) else key: steps[key] for key in steps.keys(True, True)}
    assert set(found) == set(episode.columns)
    for name, column in episode.columns.items():
        np.testing.assert_array_equal(found[name], column)


def test_a_transition_joins_two_rows(make_episode):
    episode = make_episode()
    columns, moves = episode.columns, episode.transitions()
    assert moves.batch_size == (5,)
    np.testing.assert_array_equal(moves["observation", "state"], columns["observation.state"][:-1])
    np.testing.assert_array_equal(moves["next", "observation", "state"], columns["observation.state"][1:])
    np.testing.assert_array_equal(
        moves["next", "observation", "images", "wrist_camera"], columns["observation.images.wrist_camera"][1:]
    )
    for name in ("action", "reward", "success", "truncated"):
        np.testing.assert_array_equal(moves[name], columns[name][1:])
    assert episode.steps["observation", "state"].shape == (6, 5)  # the episode itself is untouched
