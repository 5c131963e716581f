"""CPU seconds until a command has answered: its help, mistakes in names, `import rewardlab`.

    python benchmarks/start_up.py [--runs 7]

Prints the median over several processes of user and system time, which other programs on the machine disturb less than
the time on the clock, and whether torch was imported.
"""

import argparse
import os
import statistics
import subprocess
import sys

COMMANDS = {
    "python alone": "pass",
    "import rewardlab": "import rewardlab",
    "rewardlab --help": ["--help"],
    "a wrong command": ["colect"],
    "a wrong config": ["run", "tabletop_ppo_mpl"],
    "a wrong key": ["run", "tabletop_ppo_mlp", "algorithm.lr=3"],
    "a key with dashes": ["run", "tabletop_ppo_mlp", "--max_epochs", "3"],
    "a wrong environment": ["run", "tabletop_ppo_mlp", "env.train.id=tabletop/PickCub"],
    "a wrong Gymnasium id": ["run", "tabletop_ppo_mlp", "env.train.id=CartPol-v1"],
    "a wrong reward model": ["run", "zoo/cartpole_ppo_rnd", "reward.model.model_type=rdn"],
    "a wrong policy": ["collect", "tabletop_pickcube", "--policy", "exprt"],
    "a missing checkpoint": ["score", "no/such/checkpoint", "frames"],
    "a missing run": ["evaluate", "no/such/run"],
    "rewardlab config list": ["config", "list"],
    "rewardlab config show": ["config", "show", "tabletop_ppo_mlp"],
}
CALL = "from rewardlab.cli import main\ntry: main({})\nexcept SystemExit: pass\n"
REPORT = "\nimport sys; sys.exit(7 if 'torch' in sys.modules else 0)"


def measure(code: str) -> tuple[float, bool]:
    """Return the CPU seconds of a process that runs `code`, and whether it imported torch."""
    process = subprocess.Popen(
        [sys.executable, "-c", code + REPORT], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, process.returncode == 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    print(f"{'':24}{'CPU s':>8}   torch imported")
    for name, words in COMMANDS.items():
        code = words if isinstance(words, str) else CALL.format(words)
        measure(code)  # the first one reads files from the disk
        seconds, torch = zip(*(measure(code) for _ in range(runs)), strict=True)
        print(f"{name:24}{statistics.median(seconds):8.2f}   {'yes' if any(torch) else 'no'}", flush=True)


if __name__ == "__main__":
    main()
