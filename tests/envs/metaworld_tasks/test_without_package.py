"""What can be said of Meta-World where it is not installed."""

import subprocess
import sys

import pytest

from rewardlab.envs import make_vec_env
from rewardlab.errors import ConfigError


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "metaworld"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(
        ConfigError, match=r"'metaworld/reach-v3' needs metaworld.* make metaworld .*rewardlab\[metaworld"
    ):
        make_vec_env("metaworld/reach-v3")


def test_importing_the_package_imports_no_simulator() -> None:
    code = "import sys, rewardlab.envs.policies; sys.exit(bool({'mujoco', 'metaworld', 'OpenGL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
