"""The reward of a run: which model says what of which transition, now and when it is drawn again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from policy_runs import SAC, history, kept_actors, learned, train
from tensordict import TensorDict

from rewardlab.cli import main
from rewardlab.config import load_config
from rewardlab.data import read_episodes
from rewardlab.data.packed_batch import scored_pictures
from rewardlab.errors import ConfigError, DataError
from rewardlab.keys import DEFAULT_CAMERA as CAMERA
from rewardlab.rewards import BinaryRewardClassifier, load_reward_model
from rewardlab.rewards.manager import RewardManager, compute_reward
from rewardlab.rl import SAC as SACLearner
from rewardlab.workers.actor import ActorWorker

pytestmark = pytest.mark.usefixtures("without_drawing")

NAME = "binary_classifier"
RND = "{model_type: rnd, weight: 3.0, cotrain: true, options: {intrinsic_reward_type: assign}}"


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "expert"
    shown = ["--episodes", "6", "--policy", "expert", "--out", str(place)]
    assert main(["collect", "tabletop_pickcube", *shown, "env.train.image_size=[3,32,32]"]) == 0
    return place


def newest(model: Path, actor: ActorWorker) -> Any:
    """The classifier with the weights that the learner has now."""
    classifier = load_reward_model(model)
    assert actor.rewards is not None
    classifier.load_state_dict(actor.rewards.models[NAME].state_dict())
    return classifier


@pytest.mark.parametrize("relabel", ["changed", "sample"])
@pytest.mark.parametrize("mode", ["per_step", "terminal"])
def test_off_policy_a_changed_classifier_scores_stored_transitions_again(
    model: Path, demos: Path, tmp_path: Path, relabel: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["reward.cotrain=true", "reward.reward_type=continuous", f"reward.relabel={relabel}"]
    settings += [f"reward.reward_mode={mode}", f"data.data_path={demos}", "runner.max_epochs=3"]
    with kept_actors(monkeypatch) as actors:
        train(tmp_path / "run", *learned(model, *settings), *SAC)
    actor = actors[0]
    assert actor.replay is not None
    rows = actor.sample()
    ended = rows["terminated"] | rows["truncated"]
    frames, has_frame = scored_pictures(rows, CAMERA, actor.frames.pictures)
    assert torch.equal(has_frame, ended if mode == "terminal" else torch.ones_like(ended))
    assert len(actor.frames) == (3 * 8 if mode == "terminal" else 3 * 5 * 8)  # 3 rollouts of 5 steps, 8 environments
    after = newest(model, actor).probabilities(frames)
    assert not torch.equal(load_reward_model(model).probabilities(frames), after)  # type: ignore[attr-defined]
    torch.testing.assert_close(rows["reward"][has_frame], after)
    assert (rows["reward"][~has_frame] == 0).all()
    assert (rows["model_version", NAME] == 3).all()


def test_off_policy_a_cotrained_classifier_beside_novelty(
    model: Path, demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = f"reward.model=[{{checkpoint_path: {model}, weight: 2.0, cotrain: true}},{RND}]"
    settings = ["reward.use_reward_model=true", "reward.reward_type=continuous", models, f"data.data_path={demos}"]
    with kept_actors(monkeypatch) as actors:
        train(tmp_path / "run", *settings, *SAC, "runner.max_epochs=2")
    actor = actors[0]
    batch = actor.sample()
    seen = newest(model, actor).probabilities(scored_pictures(batch, CAMERA, actor.frames.pictures)[0])
    assert actor.rewards is not None
    new = actor.rewards.models["rnd"].estimate(batch)["reward"]
    torch.testing.assert_close(batch["reward"], 2 * seen + 3 * new)
    assert new.std() > 0
    assert {path.name for path in (tmp_path / "run" / "reward_models" / "last").iterdir()} == {NAME, "rnd"}


@pytest.mark.parametrize("mode", ["terminal", "per_step"])
@pytest.mark.parametrize("relabel", ["changed", "sample"])
def test_half_of_every_batch_are_demonstrations_scored_like_the_rest(
    model: Path, demos: Path, tmp_path: Path, mode: str, relabel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Any] = []
    learn = SACLearner.learn

    def watched(self: SACLearner, batch: Any) -> dict[str, float]:
        batches.append(batch)
        return learn(self, batch)

    monkeypatch.setattr(SACLearner, "learn", watched)
    settings = [f"reward.reward_mode={mode}", "reward.reward_type=continuous", f"reward.relabel={relabel}"]
    train(tmp_path / "run", *learned(model, *settings), *SAC, "runner.max_epochs=1", f"algorithm.sac.demo_path={demos}")
    moves = read_episodes(demos)[0].load().transitions()
    expected = load_reward_model(model).probabilities(moves["next", "observation"])  # type: ignore[attr-defined]
    if mode == "terminal":
        expected[:-1] = 0
    drawn = batches[0][20:]  # the second half of 40
    first = (drawn["observation", "state"][:, None] == moves["observation", "state"][None]).all(-1)
    rows, places = first.nonzero(as_tuple=True)
    assert len(rows) > 0
    torch.testing.assert_close(drawn["reward"][rows], expected[places])
    assert drawn["env_reward"].max() > 1


@pytest.mark.parametrize("other", ["rnd", "ngu"])
def test_demonstrations_beside_a_classifier_and_any_other_model(
    model: Path, demos: Path, tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bonus = f"{{model_type: {other}, weight: 3.0, cotrain: true, options: {{intrinsic_reward_type: assign}}}}"
    settings = ["reward.use_reward_model=true", "reward.reward_type=continuous", "reward.relabel=sample"]
    settings += [f"reward.model=[{{checkpoint_path: {model}, weight: 2.0}},{bonus}]"]
    with kept_actors(monkeypatch) as actors:
        train(tmp_path / "run", *settings, *SAC, "runner.max_epochs=2", f"algorithm.sac.demo_path={demos}")
    actor = actors[0]
    assert actor.demos is not None
    assert actor.rewards is not None
    whole = actor.demos._filled  # in the order of the episodes, which ngu needs
    whole = whole.copy().update(actor._estimate(whole, [term for term in actor.rule.terms if term.name != "ngu"]))
    frames, _ = scored_pictures(whole, CAMERA, actor.frames.pictures)
    seen = load_reward_model(model).probabilities(frames)  # type: ignore[attr-defined]
    new = actor.rewards.models[other].estimate(actor.rewards.model_inputs(whole))["reward"]
    torch.testing.assert_close(compute_reward(actor.rule, whole), 2 * seen + 3 * new)
    assert new.std() > 0


def test_an_alarm_makes_stored_rewards_terminal_too(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A threshold that every frame passes: all failures are called success.
    settings = ["reward.reward_threshold=0.001", "reward.audit.window=5", "reward.audit.on_alarm=terminal"]
    settings += ["reward.relabel=sample", "runner.max_epochs=6"]
    with kept_actors(monkeypatch) as actors:
        train(tmp_path / "run", *learned(model, *settings), *SAC)
    batch = actors[0].sample()
    ended = batch["terminated"] | batch["truncated"]
    assert torch.equal(batch["reward"], ended.float())
    rows = history(tmp_path / "run")
    assert rows[3]["rollout/rewards"] == pytest.approx(1)
    assert rows[5]["rollout/rewards"] == pytest.approx(1 / 5)  # the last of five steps alone
    # Of the rollouts before the alarm all frames are stored, of the one after it the last ones alone.
    assert len(actors[0].frames) == 5 * 5 * 8 - 40 + 8  # the ring holds 200 of 240 rows


def test_demonstrations_are_drawn_with_goals_that_were_reached(tmp_path: Path) -> None:
    """Hindsight over demonstrations: their transitions get goals of their own episodes, and rewards for these."""
    cfg = load_config("zoo/bitflip_dqn_her", ["actor.global_batch_size=64"])
    from rewardlab.workers.env import EnvWorker

    env = EnvWorker(cfg.env.train, seed=0, keep_next=True)
    actor = ActorWorker(cfg, *env.spaces())
    rule = RewardManager.from_config(cfg.reward, task=env.spaces(), off_policy=True).rule
    actor.set_rewards(rule, {})
    rng = np.random.default_rng(0)
    for buffer in range(2):
        env.begin(buffer)
        actions = rng.integers(0, env.spaces()[1].n, (20, cfg.env.train.num_envs))  # type: ignore[attr-defined]
        for action in actions:
            env.step(action)
        rollout: TensorDict = env.fetch().unpack().update({"action": torch.from_numpy(actions)})
        ended = rollout["terminated"] | rollout["truncated"]
        rollout["truncated"][-1] |= ~ended[-1]
        if buffer == 0:
            actor.add(rollout, 0)
        else:
            rows = rollout.permute(1, 0).reshape(-1)
            actor.demos = type(actor.replay)(len(rows), actor.frames)  # type: ignore[misc]
            actor.demos.add(rows)
    batch = actor.sample()
    reached = (batch["next_observation", "achieved_goal"] == batch["next_observation", "desired_goal"]).all(-1)
    assert torch.equal(batch["reward"], reached.float() - 1)
    assert reached[:32].any()  # from the replay buffer
    assert reached[32:].any()  # from the demonstrations


def test_terminal_with_relabelling_before_any_episode_has_ended(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["reward.reward_mode=terminal", "reward.relabel=sample", "env.train.max_episode_steps=7"]
    with kept_actors(monkeypatch) as actors:
        train(tmp_path / "run", *learned(model, *settings), *SAC, "runner.max_epochs=3")
    assert len(actors[0].frames) == 8  # the seventh step, of the second rollout, is the last of an episode


@pytest.mark.parametrize("classifiers", [2])
def test_each_of_several_classifiers_has_its_own_audit(model: Path, tmp_path: Path, classifiers: int) -> None:
    names = ("strict", "lax")[:classifiers]
    models = ",".join(f"{{checkpoint_path: {model}, name: {name}}}" for name in names)
    settings = ["reward.use_reward_model=true", f"reward.model=[{models}]", "reward.reward_type=continuous"]
    train(tmp_path / "run", *settings, "runner.max_epochs=1")
    row = history(tmp_path / "run")[0]
    assert row["audit/strict/claimed"] == row["audit/lax/claimed"]
    assert row["rollout/rewards"] == pytest.approx(row["rollout/model_rewards"])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No learned reward was audited" not in page
    assert "one of strict, lax" in page


def test_a_camera_that_the_environment_does_not_have(tmp_path: Path) -> None:
    other = BinaryRewardClassifier(image_keys=("side_camera",), image_size=(3, 32, 32), width=4, hidden_dim=8)
    with pytest.raises(DataError, match="no camera 'side_camera': the environment has base_camera, wrist_camera"):
        train(tmp_path / "run", *learned(other.save(tmp_path / "model")), "runner.max_epochs=1")


def test_demonstrations_without_the_camera_of_the_model(demos: Path, tmp_path: Path) -> None:
    other = BinaryRewardClassifier(image_keys=("wrist_camera",), image_size=(3, 32, 32), width=4, hidden_dim=8)
    settings = [*learned(other.save(tmp_path / "model")), *SAC, f"algorithm.sac.demo_path={demos}"]
    expected = "demo_path, the demonstrations in .*: no images of camera 'wrist_camera', .*found base_camera. Collect"
    with pytest.raises(DataError, match=expected):
        train(tmp_path / "run", *settings, "runner.max_epochs=1")


def test_whole_episodes_where_there_are_none(model: Path) -> None:
    """A wrapper sees single steps, so that a model of whole episodes cannot score them."""
    import gymnasium

    from rewardlab.envs.wrappers import RewardModelWrapper
    from rewardlab.rewards import NGURewardModel

    ngu = NGURewardModel(obs_shape=4, action_shape=2)
    with pytest.raises(ConfigError, match="'ngu' scores whole episodes, and a wrapper sees single steps"):
        RewardModelWrapper(gymnasium.make("CartPole-v1"), ngu)


@pytest.mark.parametrize("mode", ["per_step", "terminal"])
def test_a_verdict_ends_episodes_in_a_run(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a threshold in the middle of what the model says, some episodes end before their limit of five steps."""
    torch.manual_seed(1)
    classifier = BinaryRewardClassifier(image_size=(3, 32, 32), width=4, hidden_dim=8, num_spatial_blocks=2)
    rollouts: list[Any] = []
    add = ActorWorker.add

    def watched(self: Any, rollout: Any, *more: Any) -> int:
        rollouts.append(rollout)
        return add(self, rollout, *more)

    monkeypatch.setattr(ActorWorker, "add", watched)
    path = classifier.save(tmp_path / "model")
    train(tmp_path / "first", *learned(path, "reward.reward_type=continuous"), "runner.max_epochs=1")
    high = float(rollouts[0].rows["estimate", NAME].quantile(0.9))
    more = [f"reward.reward_threshold={high}", f"reward.reward_mode={mode}", "+reward.model.ends_episode=true"]
    data = tmp_path / "data"
    more += ["data.collection.enabled=true", f"data.collection.save_dir={data}"]
    train(tmp_path / "run", *learned(path, *more), "runner.max_epochs=1")
    batch = rollouts[1].rows
    called = batch["estimate", NAME] > high  # false at steps that were not scored
    ended = batch["terminated"] | batch["truncated"]
    assert called.any()
    assert (ended & ~called).any()
    assert torch.equal(batch["terminated"] | (batch["truncated"] & called), called)
    assert torch.equal(batch["reward"], called.float())
    episodes = [episode.load() for episode in read_episodes(data)]
    assert len(episodes) == int(ended.sum())
    lengths = [len(episode) for episode in episodes]
    assert min(lengths) < max(lengths) == 6
    for episode in episodes:  # the recorded last frame is the one that was judged
        last = episode.steps["observation", "images", "base_camera"][-1:]
        assert len(episode) == 6 or classifier.probabilities(last)[0] > high
