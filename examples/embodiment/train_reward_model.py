"""Train a BinaryRewardClassifier on positive and negative trajectories:

python examples/embodiment/train_reward_model.py --positive-dir DIR --negative-dir DIR --output-checkpoint FILE.pt
"""

import sys

from rewardlab.train_reward_model import main

if __name__ == "__main__":
    sys.exit(main())
