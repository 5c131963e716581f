"""The words every folder shares.

A Batch is a TensorDict of transitions. Its keys:

    observation.state             float32 [..., S]
    observation.images.<camera>   uint8   [..., H, W, 3]
    action                        float32 [..., A] or int64 [...]
    reward                        float32 [...]   what the learner sees
    env_reward                    float32 [...]   what the environment said, always kept
    terminated, truncated         bool    [...]
    success                       bool    [...]   true in this very frame, not "once so far"

Inside an episode, row t describes the *arrival* at frame t: the action that led to it, the reward that followed and the
frame itself. Row 0 is the reset frame, with a zero action. So a frame and its label always share a row, and the
transition (observation, action, next observation) is (row t-1, row t).
"""

from typing import TypeAlias

from tensordict import TensorDict

Batch: TypeAlias = TensorDict

STATE = ("observation", "state")
IMAGES = ("observation", "images")

DEFAULT_CAMERA = "base_camera"

# Simulators disagree on the key; the package reads all of them and writes the first.
SUCCESS_KEYS = ("success", "is_success", "succeed")
