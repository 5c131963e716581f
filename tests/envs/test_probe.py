"""What fails in a child process comes back as one line."""

import pytest

from rewardlab.envs import probe
from rewardlab.envs.probe import why_it_fails


def test_code_that_works_has_no_reason() -> None:
    assert why_it_fails("import os; assert os.environ['A_SETTING'] == 'egl'", {"A_SETTING": "egl"}) is None


def test_the_reason_is_the_error_and_not_what_objects_say_when_they_are_taken_down() -> None:
    code = (
        "class Half:\n    def __del__(self):\n        raise ValueError\nhalf = Half()\nraise RuntimeError('no device')"
    )
    assert why_it_fails(code) == "RuntimeError: no device"


def test_a_driver_that_ends_the_process_is_told() -> None:
    assert why_it_fails("import os; os.kill(os.getpid(), 11)") == "the process was ended by signal 11"


def test_a_driver_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SECONDS", 0.2)
    assert why_it_fails("import time; time.sleep(60)") == "no answer within 0.2 s"
