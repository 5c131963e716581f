"""The form in which transitions travel. (Importing this takes seconds: it brings torch and tensordict.)

A Batch is a TensorDict of transitions. Keys of all of them:

    observation.state             float32 [..., S]
    observation.achieved_goal     float32 [..., G]   tasks with goals: what is reached here, a part of the state
    observation.desired_goal      float32 [..., G]   ... and what is to be reached
    observation.images.<camera>   uint8   [..., H, W, 3]
    action                        float32 [..., A] or int64 [...]
    reward                        float32 [...]   what the learner sees
    env_reward                    float32 [...]   what the environment said, always kept
    terminated, truncated         bool    [...]
    success                       bool    [...]   true in this very frame, not "once so far"
    grasp                         bool    [...]   the object is held; where the environment says so

Rollouts [T, N] and replay buffers [n] describe *departures*: `observation` is what the action was chosen in, `reward`
and `success` are of what followed. They may have more:

    next_observation              as observation  what truly followed, also where an episode ended
    log_prob, value, next_value   float32 [...]   what the policy thought, for PPO
    frames.<camera>               uint8 [..., H, W, 3]   what followed, for a classifier that scores it again
    model_reward                  float32 [...]   the part of the models' reward that is not made again when drawn

Inside an *episode*, on disk or collected, row t describes the *arrival* at frame t: the action that led to it, the
reward that followed and the frame itself. Row 0 is the reset frame, with a zero action. So a frame and its label always
share a row, and the transition (observation, action, next observation) is (row t-1, row t).
"""

from typing import TypeAlias

from tensordict import TensorDict

Batch: TypeAlias = TensorDict
