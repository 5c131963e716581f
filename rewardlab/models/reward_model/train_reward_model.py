"""`python -m rewardlab.models.reward_model.train_reward_model`: an older path of `rewardlab.train_reward_model`."""

import sys

from rewardlab.train_reward_model import main

if __name__ == "__main__":
    sys.exit(main())
