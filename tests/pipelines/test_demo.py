"""The demo, on a small scale: all stages meet, and nothing is overwritten."""

from pathlib import Path

import pytest

from rewardlab.data import read_episodes
from rewardlab.envs.tabletop.tasks import PickCube
from rewardlab.pipelines import demo
from rewardlab.reports.history import read_history

SMALL = demo.Scale(
    episodes=24,
    iterations=2,
    judged=8,
    warm_up=("runner.max_epochs=4", "runner.stop_at_success=null", "env.train.num_envs=16", "env.eval.num_envs=4"),
    classifier=("runner.max_epochs=1", "reward.model.width=4", "data.num_samples_per_episode=2"),
    policy=("env.train.num_envs=16", "env.eval.num_envs=4"),
)


def test_all_stages_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A goal as large as the table: an untrained policy that closes its fingers on the cube succeeds now and then.
    monkeypatch.setattr(PickCube, "success", lambda self, world: world.grip[:, 2] < 0.12)
    (tmp_path / "demo").mkdir()
    out, success = demo.run(tmp_path / "demo", seed=0, scale=SMALL)
    assert out == tmp_path / "demo_2"
    assert set(success) == {"warm-up", "learned", "true"}
    assert len(read_episodes(out / "episodes" / "warmed_up")) == 24
    page = (out / "report.html").read_text()
    assert "learned reward" in page
    assert page.count("data:image/png;base64,") >= 2
    rows = read_history(out / "learned_reward" / "metrics.jsonl")
    assert all("audit/claimed" in row for row in rows)
    assert (out / "contact_sheet.png").stat().st_size > 10_000
