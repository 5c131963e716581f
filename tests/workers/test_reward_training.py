"""Two reward-training workers on Ray: as one process would train, with one checkpoint at the end."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rewardlab.cli import main
from rewardlab.config import ExperimentConfig, load_config, text_override
from rewardlab.data import Episode, EpisodeWriter
from rewardlab.pipelines import train_reward
from rewardlab.rewards import load_reward_model
from rewardlab.run_state import load_state
from rewardlab.stopping import StopRequest
from rewardlab.workers import Cluster, WorkerDied
from rewardlab.workers.reward import FSDPRewardWorker, train_on_group

SIDE = 32
SETTINGS = [
    "reward.model.arch=resnet10",
    "reward.model.width=4",
    "reward.model.hidden_dim=8",
    "reward.model.dropout=0.0",
    "data.augment=false",
    "actor.global_batch_size=16",
    "actor.micro_batch_size=8",
    "actor.optim.lr=0.001",
]
TWO_WORKERS = ["cluster.backend=ray", "cluster.workers.actor=2"]


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames are red where they are a success and blue where they are not."""
    directory = tmp_path_factory.mktemp("frames")
    writer, rng = EpisodeWriter(directory), np.random.default_rng(0)
    for k in range(8):
        success = np.arange(10) >= (6 if k % 2 else 10)
        images = rng.integers(0, 60, (10, SIDE, SIDE, 3), np.uint8)
        images[success, ..., 0] += 150
        images[~success, ..., 2] += 150
        writer.write(Episode.from_columns({"observation.images.base_camera": images, "success": success}))
    return directory


def train(data: Path, out: Path, *overrides: str) -> int:
    return main(["train-reward", "--data", str(data), text_override("runner.logger.log_path", str(out)), *overrides])


def test_two_ray_workers_have_the_loss_curve_of_one_process(episodes: Path, tmp_path: Path, ray_session: None) -> None:
    def curve(name: str, *overrides: str) -> np.ndarray:
        limits = ["runner.max_epochs=99", "runner.max_steps=20"]
        assert train(episodes, tmp_path / name, *SETTINGS, *limits, *overrides) == 0
        state, _ = load_state(tmp_path / name / "checkpoints" / "last")
        return np.array([loss for _, loss in state["progress"]["curves"]["train/loss"]])

    one, two = curve("one"), curve("two", *TWO_WORKERS)
    assert len(one) == len(two) == 20
    assert np.abs(two / one - 1).max() < 0.02
    best = tmp_path / "two" / "checkpoints" / "best_model"
    assert Path(sys.argv[0]).name in (best / "README.md").read_text()  # the driver's command, not Ray's
    model = load_reward_model(best)
    assert model.probabilities(np.zeros((2, SIDE, SIDE, 3), np.uint8)).shape == (2,)
    assert (tmp_path / "two" / "report.html").is_file()


def test_the_death_of_one_ends_the_run_with_its_name(episodes: Path, tmp_path: Path, ray_session: None) -> None:
    class Watched(FSDPRewardWorker):
        def process(self) -> int:
            return os.getpid()

    paths = [text_override("data.data_path", str(episodes)), text_override("runner.logger.log_path", str(tmp_path))]
    cfg = load_config("reward_training", [*SETTINGS, *TWO_WORKERS, *paths, "runner.max_epochs=100000"])
    with Cluster(cfg.cluster) as cluster:
        group = cluster.launch("actor", lambda place: Watched(cfg, place.index, place.count), name="Training")
        processes = group.call("process").result()
        training = group.call("train", group[0].submit("open_rendezvous"))
        while not (tmp_path / "checkpoints" / "best_model").exists():
            assert not training.done()
            time.sleep(0.2)
        os.kill(processes[1], signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"Training\[1\] died during train"):
            training.result(60)


def test_a_stop_request_of_one_ends_all_of_them_with_a_checkpoint(
    episodes: Path, tmp_path: Path, ray_session: None
) -> None:
    paths = [text_override("data.data_path", str(episodes)), text_override("runner.logger.log_path", str(tmp_path))]
    cfg = load_config("reward_training", [*SETTINGS, *TWO_WORKERS, *paths, "runner.max_epochs=100000"])
    last = tmp_path / "checkpoints" / "last"

    class Watched(FSDPRewardWorker):
        """The second worker is asked as soon as the first one has written a model; the first one never is."""

        def train(self, rendezvous: tuple[str, int] | None = None) -> Path:
            threading.Thread(target=self._ask, daemon=True).start()
            return super().train(rendezvous)

        def _ask(self) -> None:
            while not last.with_name("best_model").exists():
                time.sleep(0.1)
            if self.rank == 1:
                self.request_stop(signal.SIGTERM)

    with Cluster(cfg.cluster) as cluster:
        group = cluster.launch("actor", lambda place: Watched(cfg, place.index, place.count), name="Training")
        group.call("train", group[0].submit("open_rendezvous")).result(120)
    steps = load_state(last)[0]["progress"]["step"]
    assert steps > 0
    assert train(episodes, tmp_path, *SETTINGS, f"runner.resume_dir={last}", f"runner.max_steps={steps + 1}") == 0


def test_what_leads_the_workers_passes_a_stop_request_on(episodes: Path, tmp_path: Path, ray_session: None) -> None:
    paths = [text_override("data.data_path", str(episodes)), text_override("runner.logger.log_path", str(tmp_path))]
    cfg = load_config("reward_training", [*SETTINGS, "cluster.backend=ray", *paths, "runner.max_epochs=100000"])
    stop = StopRequest()

    def ask() -> None:
        while not (tmp_path / "checkpoints" / "best_model").exists():
            time.sleep(0.1)
        stop.request(signal.SIGTERM)

    threading.Thread(target=ask, daemon=True).start()
    with Cluster(cfg.cluster) as cluster:
        best = train_on_group(cluster, cfg, stop)
    assert load_reward_model(best).metrics
    assert (tmp_path / "checkpoints" / "last").is_dir()


def test_several_workers_in_one_process_are_refused(
    episodes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(episodes, tmp_path, "cluster.workers.actor=2") == 2
    assert "cluster.workers.actor: found 2, but cluster.backend local trains in one process" in capsys.readouterr().err


def test_a_training_whose_process_dies_says_how_it_continues(
    tmp_path: Path, ray_session: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dying(cluster: Cluster, cfg: ExperimentConfig, stop: StopRequest) -> Path:
        raise WorkerDied("RewardTraining[1] died during train")

    monkeypatch.setattr(train_reward, "train_on_group", dying)
    assert train(tmp_path, tmp_path / "run", *TWO_WORKERS) == 1
    assert (
        capsys.readouterr().err == "error: RewardTraining[1] died during train\n"
    )  # there is nothing to continue from
    (last := tmp_path / "run" / "checkpoints" / "last").mkdir(parents=True)
    assert train(tmp_path, tmp_path / "run", *TWO_WORKERS) == 1
    advice = f"The training continues with the same command and runner.resume_dir={last}"
    assert capsys.readouterr().err == f"error: RewardTraining[1] died during train. {advice}\n"
