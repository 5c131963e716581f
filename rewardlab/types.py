"""The type of a batch of transitions. (Importing it takes seconds, because it imports torch and tensordict.)

A Batch is a TensorDict of transitions. All batches have these keys:

    observation.state             float32 [..., S]
    observation.achieved_goal     float32 [..., G]   tasks with goals: the goal that the state reaches
    observation.desired_goal      float32 [..., G]   ... and the goal to reach
    observation.images.<camera>   uint8   [..., H, W, 3]
    action                        float32 [..., A] or int64 [...]
    reward                        float32 [...]   the reward that the learner maximises
    env_reward                    float32 [...]   the environment's reward, always kept
    terminated, truncated         bool    [...]
    success                       bool    [...]   true success in this frame, not "once so far"
    grasp                         bool    [...]   the object is held; if the environment reports it

In rollouts [T, N] and replay buffers [n], `observation` is the one before the action; `reward`, `success` and the ends
are those after it. They may have more keys:

    next_observation              as observation  the one after the action; at the end of an episode its last one
    log_prob, value, next_value   float32 [...]   outputs of the policy, for PPO
    estimate.<term>               float32 [...]   output of a reward model; NaN at steps that it did not score
    model_version.<term>          int32   [...]   version of that model
    frame.<camera>                int64   [...]   number of the next frame, which models score again; -1 if none

Where each picture is stored once (`data/packed_batch.py`), `images.<camera>` are such numbers too.

In an *episode*, on disk or collected, row t has frame t, the action that led to it and the reward for it. Row 0 is the
reset frame, with a zero action. So a frame and its label are in the same row, and the transition (observation, action,
next observation) is (row t-1, row t).
"""

from typing import TypeAlias

from tensordict import TensorDict

Batch: TypeAlias = TensorDict
