"""Which frame a label of a transition judges, and which frames are unsure."""

import numpy as np
import pytest

from rewardlab.data.imports.transition_labels import NEXT, SAME, choose_align, label_frames, near_onsets
from rewardlab.errors import ConfigError


def bools(text: str) -> np.ndarray:
    return np.array([mark == "1" for mark in text])


@pytest.mark.parametrize(
    ("success", "band", "unsure"),
    [
        ("0000111", 2, "0011000"),  # before an onset
        ("0001000", 2, "0110110"),  # one press: after it too
        ("1100000", 2, "0000000"),  # a success in the first frame has nothing before it
        ("0000001", 3, "0001110"),
        ("0110010", 1, "1000101"),
        ("0000111", 0, "0000000"),
    ],
)
def test_frames_beside_an_onset_are_unsure(success, band, unsure):
    assert near_onsets(bools(success), band).tolist() == bools(unsure).tolist()


def test_same_and_next_are_one_frame_apart():
    verdicts = bools("000110")
    same, after = label_frames(verdicts, SAME, 0, "r"), label_frames(verdicts, NEXT, 0, "r")
    assert same.success.tolist() == verdicts.tolist()
    assert not same.notes
    assert after.success.tolist() == bools("000011").tolist()
    assert list(after.notes.values()) == [2]
    assert not after.success_after


def test_a_success_after_the_last_frame_is_counted():
    labels = label_frames(bools("0001"), NEXT, 0, "r")
    assert not labels.success.any()
    assert labels.success_after
    assert any("without a frame" in words for words in labels.notes)


def test_an_unknown_word_for_align_is_an_error():
    with pytest.raises(ConfigError, match="same, next or auto"):
        choose_align("before", SAME)
