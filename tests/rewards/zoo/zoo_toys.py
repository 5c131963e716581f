"""Toy tasks, and each reward model of the registry, small and trained.

A point moves by its action in a plane (or on a line of pixels); the expert goes to the right, the policy wanders.
"""

from typing import Any, Literal

import torch
from gymnasium import spaces
from reward_toys import make_batch, small_binary, small_resnet
from tensordict import TensorDict
from torch import Tensor

from rewardlab.rewards import BaseRewardModel, create_reward_model
from rewardlab.rewards.base import REWARD_MODELS

View = Literal["state", "images", "state+images"]
STEPS, ENVIRONMENTS, LENGTH = 40, 3, 10
SIZE = (9, 13)  # height and width of a picture: neither square nor a power of two

CLASSIFIERS = ("resnet", "resnet_reward", "binary_classifier")
EXPERT_MODELS = ("gail", "guided_cost", "red", "pwil", "pdeil", "trex", "drex")
NOVELTY_MODELS = ("rnd", "icm", "ngu")
EPISODIC = ("pwil", "ngu")  # a transition's reward depends on the episode around it, so on the batch
TRANSITION_MODELS = (*NOVELTY_MODELS, *EXPERT_MODELS)


def observed(position: Tensor, view: View) -> Any:
    """What is seen of positions [..., 2]."""
    height, width = SIZE
    column = (position[..., 0].clamp(-3, 3) / 6 * (width - 1) + width / 2).long().clamp(0, width - 1)
    pixels = torch.zeros(*position.shape[:-1], height, width, 3, dtype=torch.uint8)
    row = torch.full_like(column, height // 2)
    flat = pixels.view(-1, height, width, 3)
    flat[torch.arange(len(flat)), row.flatten(), column.flatten()] = 255
    if view == "state":
        return position
    images = {"base_camera": pixels}
    return {"images": images} if view == "images" else {"state": position, "images": images}


def make_rollout(
    seed: int = 0, *, expert: bool = False, discrete: bool = True, view: View = "state", steps: int = STEPS
) -> TensorDict:
    """[T, N] in time order; episodes end every LENGTH steps, by termination in the first environment."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, ENVIRONMENTS)
    push = torch.randint(0, 2, shape, generator=generator)
    if expert:
        push = torch.ones_like(push)
    move = torch.stack([push * 2.0 - 1, torch.zeros(shape)], -1) * 0.2
    move += 0.02 * torch.randn(move.shape, generator=generator)
    before, after = torch.zeros(*shape, 2), torch.zeros(*shape, 2)
    position = torch.zeros(ENVIRONMENTS, 2)
    for t in range(steps):
        if t % LENGTH == 0:
            position = 0.1 * torch.randn(ENVIRONMENTS, 2, generator=generator)
        before[t], after[t] = position, position + move[t]
        position = after[t]
    ended = (torch.arange(steps) % LENGTH == LENGTH - 1)[:, None].expand(shape)
    first = torch.arange(ENVIRONMENTS) == 0
    columns = {
        "observation": observed(before, view),
        "next_observation": observed(after, view),
        "action": push if discrete else move / 0.2,
        "reward": after[..., 0],
        "terminated": ended & first,
        "truncated": ended & ~first,
        "log_prob": torch.full(shape, -0.7),
    }
    return TensorDict(columns, batch_size=shape)


def spaces_of(*, discrete: bool = True, view: View = "state") -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    state = spaces.Box(-10, 10, (2,))
    images = spaces.Dict({"base_camera": spaces.Box(0, 255, (*SIZE, 3), "uint8")})
    observation: spaces.Space[Any] = {
        "state": state,
        "images": spaces.Dict({"images": images}),
        "state+images": spaces.Dict({"state": state, "images": images}),
    }[view]
    return observation, spaces.Discrete(2) if discrete else spaces.Box(-2, 2, (2,))


POSITION = spaces.Box(-10, 10, (2,))
GOAL_SPACES = (
    spaces.Dict({key: POSITION for key in ("observation", "achieved_goal", "desired_goal")}),
    spaces.Discrete(2),
)


def make_goals(seed: int = 0) -> TensorDict:
    """Like `make_rollout`, with the position as the achieved goal and a goal to the right."""
    rollout = make_rollout(seed)
    goal = torch.tensor([1.0, 0.0]).expand(*rollout.batch_size, 2).clone()
    for which in ("observation", "next_observation"):
        position = rollout[which]
        rollout[which] = {"observation": position, "achieved_goal": position.clone(), "desired_goal": goal}
    return rollout


def ranked_trajectories(view: View = "state") -> list[TensorDict]:
    """Bad and good ones, with ranks for T-REX (rewards) and D-REX (noise levels)."""
    trajectories = []
    for seed in range(4):
        for expert in (False, True):
            rollout = make_rollout(seed, expert=expert, view=view, steps=LENGTH)[:, 0]
            rollout["noise_level"] = torch.full((LENGTH,), 0.0 if expert else 1.0)
            trajectories.append(rollout)
    return trajectories


def new(name: str, **settings: Any) -> BaseRewardModel:
    if name in CLASSIFIERS:
        build = small_binary if name == "binary_classifier" else small_resnet
        return build(update_per_collect=2)
    if name == "her":
        return create_reward_model({"type": name, **settings})
    small = {"hidden_size_list": [16, 16]} if name not in ("pwil", "pdeil") else {}
    return create_reward_model({"type": name, "update_per_collect": 20, **small, **settings})


def feed(model: BaseRewardModel, *, discrete: bool = True, view: View = "state") -> BaseRewardModel:
    """Bind, load, collect and train."""
    name = model.model_type
    if name in CLASSIFIERS:
        model.collect_data(make_batch(8))
        model.train()
        return model
    model.bind(*(GOAL_SPACES if name == "her" else spaces_of(discrete=discrete, view=view)))
    if name in ("trex", "drex"):
        model.load_expert_data(ranked_trajectories(view))
    elif name in EXPERT_MODELS:
        model.load_expert_data(make_rollout(1, expert=True, discrete=discrete, view=view))
    model.collect_data(make_goals() if name == "her" else make_rollout(2, discrete=discrete, view=view))
    model.train()
    return model


def trained(name: str, *, discrete: bool = True, view: View = "state", **settings: Any) -> BaseRewardModel:
    torch.manual_seed(0)
    return feed(new(name, **settings), discrete=discrete, view=view)


def data_for(name: str, *, discrete: bool = True, view: View = "state") -> TensorDict:
    if name in CLASSIFIERS:
        return make_batch(6)
    return make_goals(5) if name == "her" else make_rollout(5, discrete=discrete, view=view)


def as_list(batch: TensorDict) -> list[dict[str, Any]]:
    """A flat batch as a list of dictionaries, as DI-engine has it."""
    names = {"observation": "obs", "next_observation": "next_obs", "terminated": "done"}
    items = []
    for row in batch:
        plain = {key: (value.to_dict() if isinstance(value, TensorDict) else value) for key, value in row.items()}
        items.append({names.get(key, key): value for key, value in plain.items()})
    return items


ALL_MODELS = sorted(REWARD_MODELS)
