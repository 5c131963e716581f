"""Mistakes in names are answered without importing torch, which takes seconds. benchmarks/start_up.py has the times."""

import subprocess
import sys
from pathlib import Path

# A command line with a mistake, and what its answer must contain.
MISTAKES = [
    ("colect", "Did you mean 'collect'?"),
    ("run tabletop_ppo_mpl", "Did you mean 'tabletop_ppo_mlp'?"),
    ("config show tabletop_pickcub", "Did you mean 'tabletop_pickcube'?"),
    ("run tabletop_ppo_mlp algorithm.lr=3", "Did you mean 'actor.optim.lr'?"),
    ("run tabletop_ppo_mlp --max_epochs 3", "Did you mean runner.max_epochs=3?"),
    ("run tabletop_ppo_mlp algorithm.name=pop", "Did you mean 'ppo'?"),
    ("run tabletop_ppo_mlp env.train.id=tabletop/PickCub", "Did you mean 'PickCube'?"),
    ("run tabletop_ppo_mlp env.train.id=CartPol-v1", "Did you mean 'CartPole-v1'?"),
    ("run tabletop_ppo_mlp env.train.cameras=[base]", "Did you mean 'base_camera'?"),
    ("run zoo/cartpole_ppo_rnd reward.model.model_type=rdn", "Did you mean 'rnd'?"),
    (
        "run tabletop_ppo_mlp_resnet_reward reward.model.checkpoint_path=here/best_modle",
        "did you mean here/best_model?",
    ),
    ("run tabletop_ppo_mlp runner.resume_dir=nowhere", "no file or directory nowhere"),
    ("run tabletop_ppo_mlp runner.resume_dir=her", "did you mean here?"),
    ("train-reward --data her", "did you mean here?"),
    ("collect tabletop_pickcube --policy exprt", "Did you mean 'expert'?"),
    ("collect tabletop_pickcube --format safetensor", "Did you mean 'safetensors'?"),
    ("score here/best_modle frames", "did you mean here/best_model?"),
    ("score here/best_model frames", "not a checkpoint: config.json is missing"),
    ("score here frames --device gpu:x", "expected auto, cpu, cuda"),
    ("evaluate her", "did you mean here?"),
    ("data info her", "did you mean here?"),
]
PROGRAM = """
import contextlib, io, sys
from rewardlab.cli import main

for line in sys.stdin.read().splitlines():
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            code = main(line.split())
        except SystemExit as left:
            code = left.code
    print(code, "torch" in sys.modules, repr(output.getvalue()), errors.getvalue().replace("\\n", " "), sep="\\t")
"""


def test_mistakes_are_answered_without_torch(tmp_path: Path) -> None:
    (tmp_path / "here" / "best_model").mkdir(parents=True)
    lines = "\n".join(line for line, _ in MISTAKES)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=lines, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    for (line, expected), answer in zip(MISTAKES, done.stdout.splitlines(), strict=True):
        code, torch, output, error = answer.split("\t")
        assert (code, torch, output) == ("2", "False", "''"), f"{line}: {answer}"
        assert expected in error, f"{line}: {error}"
