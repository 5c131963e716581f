"""The reward models of a run that judge transitions, as one: collected for, trained, weighted and summed."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from gymnasium import Space, spaces
from tensordict import TensorDict
from torch import Tensor

from rewardlab.config.schema import RewardConfig, RewardModelConfig
from rewardlab.data.episode_replay import WholeEpisodes
from rewardlab.errors import ConfigError
from rewardlab.rewards.base import BaseRewardModel
from rewardlab.rewards.loading import create_reward_model, sort_models, takes_whole_config
from rewardlab.rewards.manager import estimated_rewards
from rewardlab.rewards.zoo.hindsight import HERRewardModel
from rewardlab.rewards.zoo.novelty import IntrinsicRewardModel
from rewardlab.types import Batch

_SEEN = ("observation", "next_observation", "action", "terminated", "truncated", "log_prob")


class Member(NamedTuple):
    model: BaseRewardModel
    weight: float
    cotrain: bool


class Verdict(NamedTuple):
    """What the models say of a rollout [T, N]; both are weighted sums."""

    reward: Tensor
    fixed: Tensor  # the part that depends on whole episodes, and cannot be said again of single transitions
    figures: dict[str, float]


class TransitionRewards:
    """Built for the task of a run, in whatever process is to train or to ask the models."""

    def __init__(self, members: Mapping[str, Member], action_space: Space[Any], *, shows_env_reward: bool) -> None:
        self.members = dict(members)
        self.shows_env_reward = shows_env_reward
        self._box = action_space if isinstance(action_space, spaces.Box) else None
        self._unfinished: Batch | None = None  # steps [T, N] of episodes that have begun in earlier rollouts
        self._episodes = WholeEpisodes()  # for models that learn from whole ones
        self._listen()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._listen()  # models do not take their logger along to another process

    @classmethod
    def from_config(
        cls,
        config: RewardConfig,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        device: str = "cpu",
        expert_data: Any = None,
        learns: bool = True,
    ) -> Self:
        """`expert_data` is for the models whose config names none. One that never `learns` is given its weights."""
        members: dict[str, Member] = {}
        taken = expert_data is None
        for wanted in sort_models(config).others:
            model = create_reward_model(wanted if learns else _without_expert(wanted), device)
            if learns:
                _check_trained(model, wanted, config)
                taken |= _give_expert(model, wanted, config, expert_data)
            model.bind(observation_space, action_space)
            members[_free_name(model.model_type, members)] = Member(model, wanted.weight, config.cotrains(wanted))
        _check_env_reward(config, members)
        if not taken:
            raise ConfigError(f"expert_data was given, but no reward model takes it: found {', '.join(members)}")
        # With `add` and `weighted` the environment's reward comes in later, and must not come in twice; and of several
        # models each would bring it.
        alone = config.combine_mode == "replace" and len(config.models) == 1
        return cls(members, action_space, shows_env_reward=alone)

    @property
    def hindsight(self) -> HERRewardModel | None:
        """The model that replaces goals by what was reached, if there is one."""
        found = (member.model for member in self.members.values() if isinstance(member.model, HERRewardModel))
        return next(found, None)

    @property
    def by_episode(self) -> bool:
        return any(member.model.by_episode for member in self.members.values())

    def pretrain(self) -> dict[str, float]:
        """Train the models that learn from expert data on it."""
        apt = {name: member.model for name, member in self.members.items() if _learns_from_expert(member.model)}
        if not apt:
            raise ConfigError(f"reward.pretrain: {', '.join(self.members)} does not learn from expert data")
        ready = [model for model in apt.values() if model.can_train()]
        if not ready:
            raise ConfigError(
                f"reward.pretrain: {', '.join(apt)} learns to tell the expert from the policy, which has done nothing "
                "yet; set reward.cotrain instead"
            )
        for model in ready:
            model.train()
        return self._losses()

    def update(self, rollout: Batch, iteration: int) -> dict[str, float]:
        """Co-training on what the policy did: collect, train, and clear where it is time to. The losses."""
        seen = self._seen(rollout)
        ended = self._episodes.add(seen) if self.by_episode else None
        for member in self.members.values():
            data = ended if member.model.by_episode else seen
            if member.cotrain and data is not None:
                member.model.cotrain(_form(member.model, data), iteration)
        return self._losses()

    def judge(self, rollout: Batch) -> Verdict:
        """The rewards of a rollout that goes on where the last one ended, see `begin`."""
        seen = self._seen(rollout)
        whole = seen if self._unfinished is None else TensorDict.cat([self._unfinished, seen])
        reward, fixed = torch.zeros(rollout.batch_size), torch.zeros(rollout.batch_size)
        figures: dict[str, float] = {}
        for name, member in self.members.items():
            said = _estimate(member.model, whole if member.model.by_episode else seen)[-len(seen) :]
            figures[f"reward_model/{name}_mean"] = float(said.mean())
            figures[f"reward_model/{name}_std"] = float(said.std(unbiased=False))
            reward += member.weight * said
            if member.model.by_episode:
                fixed += member.weight * said
        if self.by_episode:
            self._unfinished = _unfinished(whole)
        return Verdict(reward, fixed, figures)

    def update_and_judge(self, rollout: Batch, iteration: int) -> Verdict:
        """Learn from a rollout, then judge it; the losses are among the figures."""
        losses = self.update(rollout, iteration)
        verdict = self.judge(rollout)
        return verdict._replace(figures=losses | verdict.figures)

    def begin(self) -> None:
        """All episodes start afresh."""
        self._unfinished = None
        self._episodes.forget()

    def estimate(self, batch: Batch) -> Tensor:
        """The weighted rewards of transitions in any order, by the models that need no episodes."""
        seen = self._seen(batch)
        reward = torch.zeros(batch.batch_size)
        for member in self.members.values():
            if not member.model.by_episode:
                reward += member.weight * _estimate(member.model, seen)
        return reward

    def state_dict(self) -> dict[str, Any]:
        """What `estimate` depends on. A class in DI-engine's form may keep anything anywhere: it goes whole."""
        return {
            name: member.model if takes_whole_config(type(member.model)) else member.model.state_dict()
            for name, member in self.members.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, member in self.members.items():
            if isinstance(state[name], BaseRewardModel):
                self.members[name] = member._replace(model=state[name])
            else:
                member.model.load_state_dict(state[name])

    def training_state(self) -> dict[str, Any]:
        """What `update` depends on too: optimisers, random generators, collected data."""
        return {name: member.model.training_state() for name, member in self.members.items()}

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        if state.keys() != self.members.keys():
            found, here = (", ".join(names) for names in (state, self.members))
            raise ConfigError(f"reward.model: the checkpoint was made with {found}, this run has {here}")
        for name, member in self.members.items():
            inherited = type(member.model).training_state is BaseRewardModel.training_state
            if takes_whole_config(type(member.model)) and inherited:
                warnings.warn(
                    f"reward model '{name}' is resumed with its networks alone; what else it keeps begins anew, since "
                    "it has no training_state of its own",
                    stacklevel=2,
                )
            member.model.load_training_state(state[name])

    def save(self, directory: str | Path) -> None:
        """A checkpoint of each model, `directory`/<its name>."""
        for name, member in self.members.items():
            member.model.save(Path(directory) / name)

    def _listen(self) -> None:
        self._scalars = {name: Scalars() for name in self.members}
        for name, member in self.members.items():
            member.model.tb_logger = self._scalars[name]

    def _losses(self) -> dict[str, float]:
        """What the models reported of their updates, each under a name of its own: two may be of one type."""
        losses: dict[str, float] = {}
        for name, scalars in self._scalars.items():
            for tag, mean in scalars.means().items():
                own = tag.replace(f"/{self.members[name].model.model_type}_", f"/{name}_", 1)
                losses[f"{own}_{name}" if own in losses else own] = mean
        return losses

    def _seen(self, batch: Batch) -> Batch:
        """What models look at: actions as the environment took them, and its reward unless it is added later."""
        seen = batch.select(*_SEEN, strict=False)
        if self._box is not None:
            low, high = torch.as_tensor(self._box.low), torch.as_tensor(self._box.high)
            seen["action"] = seen["action"].clamp(low, high)
        if self.shows_env_reward:
            seen["reward"] = batch["env_reward"]
        return seen


class Scalars:
    """Stands in for a TensorBoard writer: what models report of single updates becomes one mean an iteration."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._values.setdefault(tag, []).append(float(scalar_value))

    def means(self) -> dict[str, float]:
        values, self._values = self._values, {}
        return {tag: sum(numbers) / len(numbers) for tag, numbers in values.items()}


def _estimate(model: BaseRewardModel, seen: Batch) -> Tensor:
    return estimated_rewards(model.estimate(_form(model, seen))).float().cpu().reshape(seen.batch_size)


def _form(model: BaseRewardModel, seen: Batch) -> Any:
    """Transitions as the model wants them."""
    if not takes_whole_config(type(model)):
        return seen
    flat = seen.flatten()
    observation, following = (
        next(iter(flat[key].values())) if len(flat[key].keys()) == 1 else flat[key]
        for key in ("observation", "next_observation")
    )
    reward = flat["reward"] if "reward" in flat else torch.zeros(len(flat))
    columns = (observation, following, flat["action"], reward, flat["terminated"] | flat["truncated"])
    names = ("obs", "next_obs", "action", "reward", "done")
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.unbind() for c in columns), strict=True)]


def _check_env_reward(config: RewardConfig, members: Mapping[str, Member]) -> None:
    """Several models cannot each bring the environment's reward along."""
    for name, member in members.items():
        adds = isinstance(member.model, IntrinsicRewardModel) and member.model.intrinsic_reward_type == "add"
        if adds and config.combine_mode == "replace" and len(config.models) > 1:
            raise ConfigError(
                f"reward.combine_mode: found replace beside intrinsic_reward_type: add of '{name}', one of several "
                "models; set combine_mode to add for the environment's reward, or intrinsic_reward_type to assign"
            )


def _learns_from_expert(model: BaseRewardModel) -> bool:
    return type(model).load_expert_data is not BaseRewardModel.load_expert_data


def _check_trained(model: BaseRewardModel, wanted: RewardModelConfig, config: RewardConfig) -> None:
    trains = config.cotrains(wanted) or config.pretrain
    if model.begins_untrained and not trains and wanted.checkpoint_path is None:
        raise ConfigError(
            f"reward.cotrain: found false, but reward model '{model.model_type}' begins untrained; set reward.cotrain "
            "or reward.pretrain, or give its checkpoint_path"
        )


def _give_expert(model: BaseRewardModel, wanted: RewardModelConfig, config: RewardConfig, expert_data: Any) -> bool:
    """Load what `create_reward_model` has not loaded; whether `expert_data` was of use."""
    path = wanted.options.get("expert_data_path")
    if not _learns_from_expert(model):
        return False
    if wanted.checkpoint_path is not None and not (config.cotrains(wanted) or config.pretrain):
        return False  # it can be asked without its expert
    if path is not None and wanted.checkpoint_path is None:
        return False
    source = expert_data if path is None else path
    if source is not None:
        model.load_expert_data(source)
    return source is expert_data


def _without_expert(wanted: RewardModelConfig) -> RewardModelConfig:
    return replace(wanted, options={key: o for key, o in wanted.options.items() if key != "expert_data_path"})


def _free_name(model_type: str, taken: Mapping[str, Any]) -> str:
    name, number = model_type, 2
    while name in taken:
        name, number = f"{model_type}_{number}", number + 1
    return name


def _unfinished(steps: Batch) -> Batch | None:
    """The last steps of [T, N], from where the oldest episode that has not ended begins."""
    ended = steps["terminated"] | steps["truncated"]
    number = torch.arange(1, len(ended) + 1)[:, None]
    begins = int((ended * number).amax(0).amin())
    return steps[begins:].clone() if begins < len(steps) else None
