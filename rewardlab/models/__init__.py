"""Networks. They know images and weights; what their scores mean is decided in `rewardlab.rewards`."""
