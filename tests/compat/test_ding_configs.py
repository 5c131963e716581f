"""DI-engine's pairs of configs mean here what they mean there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from rewardlab.compat import ding_configs, ding_rewards
from rewardlab.config import config_from_mapping
from rewardlab.config.schema import ExperimentConfig
from rewardlab.config.schema_keys import schema_keys
from rewardlab.errors import ConfigError
from rewardlab.rewards.base import REWARD_MODELS

Pair = tuple[dict[str, Any], dict[str, Any]]

ENV = {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 6, "stop_value": 195}
PPO = {
    "cuda": True,
    "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [32, 16], "actor_head_hidden_size": 16},
    "learn": {
        "epoch_per_collect": 2,
        "batch_size": 40,
        "learning_rate": 0.002,
        "value_weight": 0.4,
        "entropy_weight": 0.01,
        "clip_ratio": 0.1,
        "value_norm": False,
    },
    "collect": {"n_sample": 250, "unroll_len": 1, "discount_factor": 0.9, "gae_lambda": 0.8},
    "eval": {"evaluator": {"eval_freq": 100}},
}
DQN = {
    "cuda": False,
    "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [24]},
    "nstep": 1,
    "discount_factor": 0.95,
    "learn": {"update_per_collect": 6, "batch_size": 32, "learning_rate": 0.003, "target_update_freq": 70},
    "collect": {"n_sample": 24},
    "other": {
        "eps": {"type": "linear", "start": 0.9, "end": 0.2, "decay": 3000},
        "replay_buffer": {"replay_buffer_size": 5000},
    },
}
SAC = {
    "random_collect_size": 500,
    "model": {"obs_shape": 3, "action_shape": 1, "twin_critic": True, "actor_head_hidden_size": 48},
    "learn": {
        "update_per_collect": 5,
        "batch_size": 100,
        "learning_rate_q": 0.004,
        "learning_rate_policy": 0.004,
        "target_theta": 0.02,
        "alpha": 0.3,
        "discount_factor": 0.98,
    },
    "collect": {"n_sample": 10},
}
FIELDS = {
    name: {field.name for field in dataclasses.fields(REWARD_MODELS[name])}  # type: ignore[arg-type]
    for name in REWARD_MODELS
    if dataclasses.is_dataclass(REWARD_MODELS[name])
}


class EasyDict(dict):  # type: ignore[type-arg]
    """As the package of this name: a dict all the way down."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        super().__init__({k: EasyDict(v) if isinstance(v, Mapping) else v for k, v in mapping.items()})


def pair(policy: dict[str, Any] = DQN, kind: str = "dqn", env: str = "cartpole", **reward: Any) -> Pair:
    main = {"exp_name": "mine", "env": ENV, "reward_model": {"type": "rnd", **reward}, "policy": policy}
    create = {
        "env": {"type": env, "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
        "env_manager": {"type": "base"},
        "policy": {"type": kind},
    }
    return main, create


def translated(main: Mapping[str, Any], create: Mapping[str, Any]) -> tuple[ExperimentConfig, list[str]]:
    result = ding_configs.translate_pair(main, create, FIELDS.__getitem__)
    return config_from_mapping(result.mapping, check_files=False), result.notes


def options(**reward: Any) -> dict[str, Any]:
    return translated(*pair(**reward))[0].reward.models[0].options


def with_policy(policy: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The policy with other values of keys of its blocks, written block__key."""
    changed = {**policy}
    for name, value in changes.items():
        block, _, key = name.partition("__")
        changed[block] = {**changed.get(block, {}), key: value} if key else value
    return changed


def test_a_ppo_pair() -> None:
    cfg, notes = translated(*pair(PPO, "ppo"))

    assert not notes
    assert cfg.runner.logger.experiment_name == "mine"
    assert cfg.runner.stop_at_return == 195
    assert (cfg.env.train.id, cfg.env.train.max_episode_steps, cfg.env.train.num_envs) == ("CartPole-v1", 200, 8)
    assert (cfg.env.eval.id, cfg.env.eval.max_episode_steps, cfg.env.eval.num_envs) == ("CartPole-v1", 200, 6)
    assert (cfg.algorithm.name, cfg.algorithm.gamma) == ("ppo", 0.9)
    ppo = cfg.algorithm.ppo
    assert (ppo.update_epochs, ppo.clip_ratio, ppo.gae_lambda, ppo.normalize_reward) == (2, 0.1, 0.8, False)
    assert (ppo.value_coef, ppo.entropy_coef) == (0.4, 0.01)
    assert ppo.rollout_steps == 32  # 250 samples of 8 environments, rounded up
    assert (cfg.actor.global_batch_size, cfg.actor.optim.lr, cfg.actor.optim.max_grad_norm) == (40, 0.002, 0.5)
    assert cfg.actor.optim.schedule == "constant"
    assert cfg.actor.model.hidden_sizes == (32, 16)
    assert cfg.runner.val_check_interval == 8  # 100 updates, of which an iteration makes 2 * 7
    assert cfg.reward.models[0].model_type == "rnd"


def test_a_dqn_pair() -> None:
    cfg, notes = translated(*pair())

    assert not notes
    dqn = cfg.algorithm.dqn
    assert (cfg.algorithm.name, cfg.algorithm.gamma) == ("dqn", 0.95)
    assert (dqn.rollout_steps, dqn.utd_ratio) == (3, 0.25)
    assert (dqn.target_update_interval, dqn.replay_size, dqn.learning_starts) == (70, 5000, 0)
    assert (dqn.epsilon_start, dqn.epsilon_end, dqn.epsilon_steps) == (0.9, 0.2, 3000)
    assert (cfg.actor.global_batch_size, cfg.actor.optim.lr) == (32, 0.003)
    assert cfg.runner.val_check_interval == 167  # DI-engine's 1000 updates


def test_a_sac_pair() -> None:
    main, create = pair(SAC, "sac", "pendulum")
    main["env"] = {**ENV, "stop_value": float("inf")}
    cfg, notes = translated(main, create)

    assert not notes
    assert cfg.runner.stop_at_return is None
    sac = cfg.algorithm.sac
    assert (cfg.env.train.id, cfg.algorithm.name, cfg.algorithm.gamma) == ("Pendulum-v1", "sac", 0.98)
    assert (sac.rollout_steps, sac.utd_ratio, sac.learning_starts) == (2, 0.5, 500)
    assert (sac.tau, sac.init_alpha) == (0.02, 0.3)
    assert (cfg.actor.global_batch_size, cfg.actor.optim.lr, cfg.actor.model.hidden_sizes) == (100, 0.004, (48, 48))


def test_what_a_pair_leaves_out_has_the_default_of_ding() -> None:
    policy = {"model": {"obs_shape": 4}, "collect": {"n_sample": 8}}
    cfg, _ = translated(*pair(policy))

    dqn = cfg.algorithm.dqn
    assert (cfg.algorithm.gamma, cfg.actor.optim.lr, cfg.actor.global_batch_size) == (0.97, 1e-3, 64)
    assert (dqn.rollout_steps, dqn.utd_ratio, dqn.target_update_interval, dqn.replay_size) == (1, 3 / 8, 100, 10_000)
    # exp(-n / 10000) over all n is as many random actions as a line that ends at 20000
    assert (dqn.epsilon_start, dqn.epsilon_end, dqn.epsilon_steps) == (0.95, 0.1, 20_000)
    assert translated(*pair(policy, "ppo"))[0].algorithm.ppo.update_epochs == 10


def test_updates_of_ppo_are_passes_over_the_rollout() -> None:
    policy = with_policy(PPO, learn={"update_per_collect": 6, "batch_size": 64}, collect={"n_sample": 128})
    cfg, notes = translated(*pair(policy, "ppo_offpolicy"))

    assert cfg.algorithm.ppo.update_epochs == 3
    assert [note for note in notes if "ppo_offpolicy runs as ppo, on policy" in note]


def test_the_pair_may_be_easydicts_and_stays_as_it_was() -> None:
    main, create = (EasyDict(part) for part in pair())
    before = EasyDict(main), EasyDict(create)

    assert translated(main, create)[0] == translated(*pair())[0]
    assert (main, create) == before


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "rnd", "obs_shape": 4, "batch_size": 32}, {"batch_size": 32}),
        (
            {"type": "rnd", "intrinsic_reward_weight": None, "intrinsic_reward_rescale": 0.001},
            {"intrinsic_reward_weight": 0.001},
        ),
        (
            {"type": "rnd", "intrinsic_reward_type": "assign"},
            {"intrinsic_reward_type": "assign", "intrinsic_reward_weight": 1.0},
        ),
        ({"type": "icm", "reverse_scale": 3, "action_shape": 2}, {"forward_loss_weight": 0.25}),
        ({"type": "gail", "input_size": 5, "hidden_size": 24}, {"hidden_size_list": [24]}),
        ({"type": "gail", "data_path": "expert"}, {"expert_data_path": "expert/expert_data.pkl"}),
        ({"type": "guided_cost", "hidden_size": 24, "continuous": False}, {"hidden_size_list": [24, 24]}),
        ({"type": "red", "hidden_size_list": [64, 1], "sigma": 0.5}, {"hidden_size_list": [64], "sigma": 0.5}),
        ({"type": "pwil", "alpha": 4, "beta": 3, "s_size": 4, "a_size": 2}, {"reward_scale": 4, "bandwidth": 3}),
        ({"type": "pdeil", "alpha": 0.5, "discrete_action": True}, {"alpha": 0.5}),
        (
            {"type": "trex", "min_snippet_length": 5, "update_per_collect": 2, "num_snippets": 30, "num_trajs": 6},
            {"min_snippet_length": 5, "update_per_collect": 60, "batch_size": 1},
        ),
        ({"type": "drex", "hidden_size_list": [512, 64, 1]}, {"hidden_size_list": [512, 64]}),
        ({"type": "her", "her_strategy": "final"}, {"her_strategy": "final"}),
        ({"type": "episodic", "learning_rate": 0.1}, {"learning_rate": 0.1}),
    ],
)
def test_keys_of_reward_models(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert options(**given) == expected
    assert set(expected) <= FIELDS[ding_rewards.TYPES.get(given["type"], given["type"])]


def test_the_two_models_of_ngu_are_one() -> None:
    main, create = pair()
    main["rnd_reward_model"] = {"type": "rnd", "clear_buffer_per_iters": 10, "batch_size": 64}
    main["episodic_reward_model"] = {"type": "episodic", "batch_size": 32}
    create |= {"rnd_reward_model": {"type": "rnd-ngu"}, "episodic_reward_model": {"type": "episodic"}}
    del main["reward_model"]

    model = translated(main, create)[0].reward.models[0]
    assert model.model_type == "ngu"
    assert model.options == {"clear_buffer_per_iters": 10, "batch_size": 32}


def ngu_pair(kind: str) -> Pair:
    """With the keys of the pair that DI-engine ships, NGU on CartPole."""
    main, create = pair(
        {
            **{"cuda": True, "priority": True, "priority_IS_weight": True, "discount_factor": 0.997, "nstep": 5},
            **{"burnin_step": 2, "learn_unroll_len": 40},
            "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [16], "collector_env_num": 8},
            "learn": {"update_per_collect": 8, "batch_size": 32, "learning_rate": 1e-4, "target_update_theta": 0.001},
            "collect": {"n_sample": 32, "traj_len_inf": True, "env_num": 8},
            "eval": {"env_num": 8},
            "other": {
                "eps": {"type": "exp", "start": 0.95, "end": 0.05, "decay": 1e4},
                "replay_buffer": {"replay_buffer_size": int(1e4), "alpha": 0.6, "beta": 0.4},
            },
        },
        kind,
    )
    del main["reward_model"]
    model = {"intrinsic_reward_type": "add", "learning_rate": 5e-4, "obs_shape": 4, "action_shape": 2, "nstep": 5}
    main["rnd_reward_model"] = {**model, "type": "rnd-ngu"}
    main["episodic_reward_model"] = {**model, "type": "episodic", "last_nonzero_reward_rescale": False}
    create |= {"rnd_reward_model": {"type": "rnd-ngu"}, "episodic_reward_model": {"type": "episodic"}}
    return main, create


def test_the_policy_of_ngu_is_refused_with_what_it_is_and_what_runs() -> None:
    for kind in ("ngu", "ngu_command"):
        with pytest.raises(ConfigError) as error:
            translated(*ngu_pair(kind))
        said = str(error.value)
        assert said.startswith("create_config.policy.type: found 'ngu', a recurrent R2D2 agent")
        assert said.endswith("set create_config.policy.type to dqn and call serial_pipeline_reward_model_offpolicy")


def test_with_dqn_as_it_says_the_pair_of_ngu_runs() -> None:
    cfg, notes = translated(*ngu_pair("dqn"))
    assert cfg.reward.models[0].model_type == "ngu"
    assert (cfg.algorithm.name, cfg.algorithm.dqn.tau, cfg.algorithm.dqn.epsilon_steps) == ("dqn", 0.001, 20_000)
    said = " | ".join(notes)
    for lost in ("policy.nstep = 5", "policy.priority = True", "policy.burnin_step", "policy.learn_unroll_len"):
        assert lost in said


def test_whole_numbers_may_be_written_as_1e4() -> None:
    policy = with_policy(DQN, other={"eps": {"decay": 1e3}, "replay_buffer": {"replay_buffer_size": 1e4}})
    dqn = translated(*pair(policy))[0].algorithm.dqn
    assert (dqn.replay_size, dqn.epsilon_steps) == (10_000, 2_000)


def test_hindsight_is_found_where_ding_keeps_it() -> None:
    main, create = pair(with_policy(DQN, other={"her": {"her_strategy": "final", "her_replay_k": 2}}))
    del main["reward_model"]

    model = translated(main, create)[0].reward.models[0]
    assert (model.model_type, model.options) == ("her", {"her_strategy": "final", "her_replay_k": 2})


def test_what_is_lost_is_said() -> None:
    policy = with_policy(DQN, nstep=3, priority=True, model__dueling=True, collect__gae_lambda=0.9)
    _, notes = translated(*pair(policy, type="red", sample_size=1000))

    said = " | ".join(notes)
    for key in ("policy.nstep = 3", "policy.priority", "policy.model.dueling", "reward_model.sample_size"):
        assert key in said
    assert "policy.collect.gae_lambda is ignored: dqn has no use for it" in notes


def test_unknown_keys_are_named_in_one_note() -> None:
    policy = with_policy(DQN, learn__lerning_rate=1, model__encoder_hidden_size=3)
    main, create = pair(policy, lerning_rate=1)
    _, notes = translated({**main, "extra": 1}, {**create, "parallel": {"type": "x"}})

    (note,) = notes
    for key in ("policy.learn.lerning_rate", "policy.model.encoder_hidden_size", "reward_model.lerning_rate"):
        assert key in note
    assert "extra" in note
    assert "create_config.parallel.type" in note


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (pair(kind="td3"), "create_config.policy.type: found 'td3', expected .*; the nearest to it is sac"),
        (pair(env="atari"), "create_config.env.type: unknown environment 'atari'.*give env.env_id"),
        (pair(type=None), "create_config.reward_model.type: found None"),
        (pair(with_policy(DQN, collect__n_sample=0)), "policy.collect.n_sample: found 0"),
        (
            pair(with_policy(DQN, collect__discount_factor=0.5)),
            "policy.discount_factor = 0.95 and policy.collect.discount_factor = 0.5",
        ),
    ],
)
def test_bad_pairs_are_refused_by_name(broken: Pair, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(*broken)


@pytest.mark.parametrize(
    ("name", "expected", "more"),
    [
        ("CartPole-v0", "CartPole-v1", {}),
        ("LunarLanderContinuous-v2", "LunarLander-v3", {"continuous": True}),
        ("Hopper-v5", "Hopper-v5", {}),
    ],
)
def test_an_env_id_is_stronger_than_the_type(name: str, expected: str, more: dict[str, Any]) -> None:
    main, create = pair(env="mujoco")
    cfg, _ = translated({**main, "env": {**ENV, "env_id": name}}, create)
    assert (cfg.env.train.id, cfg.env.train.options) == (expected, more)


def test_every_row_leads_to_a_key_of_the_schema() -> None:
    tables = [ding_configs.KEYS, *ding_configs.KEYS_OF.values()]
    named = {key for table in tables for key in table.values()}
    named |= {key for defaults in ding_configs.DEFAULTS.values() for key in defaults}
    assert named <= set(schema_keys())
    for kind, renamed in ding_rewards.KEYS.items():
        assert set(renamed.values()) <= FIELDS[kind]
