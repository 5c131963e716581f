"""Speed of the reward models over transitions, with the networks of CartPole, one thread.

    .venv/bin/python benchmarks/zoo.py

`estimate` takes a TensorDict of 1,024 transitions and gives one with rewards. `train` is compared with the same network
stepped by the same optimizer on tensors that lie ready; rounds alternate, and the ratio is the median over rounds.
Other programs distort the speeds: mind the load in the title, and the best call beside the median.
"""

import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.table import Table
from tensordict import TensorDict

from rewardlab.rewards import create_reward_model
from rewardlab.rewards.zoo.coupling import Floats, couple
from rewardlab.rewards.zoo.transition_model import TransitionRewardModel

BATCH, ROUNDS, UPDATES = 1024, 15, 200
OBSERVATIONS, ACTIONS = spaces.Box(-5, 5, (4,)), spaces.Discrete(2)
ESTIMATE_BARS = {"rnd": 500_000, "gail": 2_000_000}


def cartpole_batch(count: int, seed: int = 0) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.arange(count) % 200 == 199
    columns = {
        "observation": torch.randn(count, 4, generator=generator),
        "next_observation": torch.randn(count, 4, generator=generator),
        "action": torch.randint(0, 2, (count,), generator=generator),
        "reward": torch.ones(count),
        "terminated": ends,
        "truncated": torch.zeros(count, dtype=torch.bool),
    }
    return TensorDict(columns, batch_size=[count])


def ranked_trajectories() -> list[TensorDict]:
    batches = [cartpole_batch(200, seed) for seed in range(20)]
    for rank, batch in enumerate(batches):
        batch["rank"] = torch.full((200,), float(rank))
        batch["noise_level"] = torch.full((200,), 1 - rank / 20)
    return batches


def build(name: str, **settings: Any) -> TransitionRewardModel:
    model = create_reward_model({"type": name, **settings})
    assert isinstance(model, TransitionRewardModel)
    model.bind(OBSERVATIONS, ACTIONS)
    if name in ("trex", "drex"):
        model.load_expert_data(ranked_trajectories())
    elif name not in ("rnd", "icm", "ngu"):
        model.load_expert_data(cartpole_batch(2000, 1))
    model.collect_data(cartpole_batch(4000, 2))
    return model


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def estimates(table: Table) -> None:
    batch = cartpole_batch(BATCH)
    for name in ("rnd", "icm", "ngu", "gail", "guided_cost", "red", "pwil", "pdeil", "trex"):
        model = build(name, update_per_collect=5)
        model.train()
        calls = 3 if name == "pwil" else 20
        for _ in range(calls):
            model.estimate(batch)
        times = [seconds(lambda m=model: m.estimate(batch)) for _ in range(calls * ROUNDS)]  # type: ignore[misc]
        bar = f"{ESTIMATE_BARS[name]:,}" if name in ESTIMATE_BARS else "none"
        measured = f"{BATCH / statistics.median(times):,.0f} (best {BATCH / min(times):,.0f})"
        table.add_row(f"{name}: estimate, transitions/s", measured, bar)


def long_episodes(table: Table) -> None:
    """The cost of a rollout of 64 steps of 8 environments whose episodes have been running for a while."""
    for name, settings in (("ngu", {}), ("pwil", {"horizon": 50_000})):
        model = build(name, update_per_collect=5, **settings)
        model.train()
        times = {}
        for begun in (0, 2560, 10_240):
            carried = None
            for seed in range(begun // 64):
                _, carried = model.estimate_next(endless_rollout(seed), carried)
            rollout = endless_rollout(9)
            work = functools.partial(model.estimate_next, rollout, carried)
            times[begun] = statistics.median(seconds(work) for _ in range(ROUNDS))
        for later, earlier in ((2560, 0), (10_240, 2560)):
            ratio = f"{times[later] / times[earlier]:.2f}x ({1000 * times[earlier]:.0f} ms at step {earlier:,})"
            table.add_row(f"{name}: estimate of a rollout at step {later:,} / {earlier:,}", ratio, "constant cost")


def coupling(table: Table) -> None:
    """PWIL against sorting all atoms for each step, on a random walk of 200 steps and 2,000 atoms of an expert's."""
    rng = np.random.default_rng(0)
    atoms, points = (np.cumsum(0.2 * rng.normal(size=(count, 200, 6)), axis=1) for count in (10, 1))
    atoms, points, owed = atoms.reshape(-1, 6), points[0], 1 / 200
    ratios = [
        seconds(lambda: couple_by_sorting(points, atoms, owed))
        / seconds(lambda: couple(points, atoms, owed, full(atoms)))
        for _ in range(ROUNDS)
    ]
    table.add_row("pwil: rate of the coupling / sorting all atoms", f"{statistics.median(ratios):.1f}x", "none")


def full(atoms: Floats) -> Floats:
    return np.full(len(atoms), 1 / len(atoms))


def couple_by_sorting(points: Floats, atoms: Floats, owed: float) -> list[float]:
    mass, costs = full(atoms), []
    for point in points:
        distance = np.sqrt(np.square(atoms - point).sum(1))
        order = distance.argsort()
        held = mass[order]
        taken = np.clip(owed - held.cumsum() + held, 0, held)
        mass[order] = held - taken
        costs.append(float(taken @ distance[order]))
    return costs


def endless_rollout(seed: int) -> TensorDict:
    rollout = cartpole_batch(64 * 8, seed)
    rollout["terminated"] = torch.zeros_like(rollout["terminated"])
    return rollout.reshape(64, 8)


def plain_training(model: Any, name: str) -> Callable[[], None]:
    """The same loss of the same network, on batches that were drawn before."""
    policy = next(iter(model._batches(model._collected())))
    expert = next(iter(model._batches(model.expert.columns))) if name == "gail" else None
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def run() -> None:
        for _ in range(UPDATES):
            loss = model.network.learn(expert, policy) if name == "gail" else model.network.learn(policy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def training(table: Table) -> None:
    for name in ("rnd", "icm", "gail"):
        model = build(name, update_per_collect=UPDATES)
        plain = plain_training(build(name, update_per_collect=UPDATES), name)
        model.train()
        plain()
        ratios = [seconds(model.train) / seconds(plain) for _ in range(ROUNDS)]
        text = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(f"{name}: train / the network on ready tensors", text, "at most 1.3x")


def preferences(table: Table) -> None:
    model = build("trex", update_per_collect=50, min_snippet_length=50, max_snippet_length=50)
    rates = []
    for _ in range(ROUNDS):
        model.updates = 0
        rates.append(50 * model.batch_size / seconds(model.train))
    table.add_row("trex: pairs/s (snippets of 50 steps)", f"{statistics.median(rates):,.0f}", "862 (DI-engine)")


def lists(table: Table) -> None:
    batch = cartpole_batch(BATCH)
    columns = {"obs": "observation", "next_obs": "next_observation", "action": "action", "reward": "reward"}
    items = [{key: batch[name][i] for key, name in columns.items()} | {"done": False} for i in range(BATCH)]
    for name in ("rnd", "gail"):
        model = build(name, update_per_collect=5)
        model.train()
        rates = [BATCH / seconds(lambda m=model: m.estimate(items)) for _ in range(5 * ROUNDS)]  # type: ignore[misc]
        table.add_row(f"{name}: estimate of a list, transitions/s", f"{statistics.median(rates):,.0f}", "100,000")
        rates = [BATCH / seconds(lambda m=model: m.collect_data(items)) for _ in range(5 * ROUNDS)]  # type: ignore[misc]
        table.add_row(f"{name}: collect_data of a list, transitions/s", f"{statistics.median(rates):,.0f}", "100,000")


def main() -> None:
    torch.set_num_threads(1)
    table = Table("reward models", "measured", "bar", title=f"1 thread, load {os.getloadavg()[0]:.1f} at the start")
    estimates(table)
    long_episodes(table)
    coupling(table)
    training(table)
    preferences(table)
    lists(table)
    Console().print(table)


if __name__ == "__main__":
    main()
