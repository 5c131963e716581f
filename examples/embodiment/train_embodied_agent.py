"""Train a policy by the name of its config:

python examples/embodiment/train_embodied_agent.py --config-path examples/embodiment/config \\
    --config-name maniskill_ppo_cnn [key=value ...]
"""

import argparse
import os
import sys
from pathlib import Path

from rewardlab.cli import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config-path", help="directory of the config (default: those of rewardlab)")
    parser.add_argument("--config-name", required=True)
    arguments, overrides = parser.parse_known_args()
    os.environ.setdefault("EMBODIED_PATH", str(Path(__file__).parent))  # configs may name it
    config = arguments.config_name
    if arguments.config_path and (file := Path(arguments.config_path, f"{config}.yaml")).is_file():
        config = str(file)
    sys.exit(main(["run", config, *overrides]))
