"""Training on one process or on several.

Parallelism is applied from outside (FSDP2's `fully_shard`); networks contain nothing of it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as full_state
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from rewardlab.devices import CPU, use_device

FULL_ON_CPU = full_state.StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass(frozen=True)
class Processes:
    """Process `rank` of `size`, which trains on `device`. In a single process every method is a local operation.

    Collectives are given tensors on `device` alone: NCCL accepts no others.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    @property
    def many(self) -> bool:
        return self.size > 1

    def shard(self, network: nn.Module, bf16: bool) -> None:
        """Shard the parameters over the processes, in place."""
        if self.many:
            low = torch.bfloat16 if bf16 else None
            # Without a mesh, FSDP would take the machine's accelerator, whatever the config says.
            mesh = init_device_mesh(self.device.type, (self.size,))
            policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
            fully_shard(network, mesh=mesh, mp_policy=policy)

    def mean(self, value: float) -> float:
        return self.means(value)[0]

    def means(self, *values: float) -> list[float]:
        """Return the mean of each value over the processes, in one exchange."""
        if not self.many:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return [float(value) / self.size for value in total]

    def weights(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the whole state of a network on the CPU; empty on all processes but the leader."""
        if not self.many:
            return {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
        # Running statistics are not sharded: each process computed its own, from its share of every batch.
        for buffer in network.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= self.size
        return full_state.get_model_state_dict(network, options=FULL_ON_CPU)  # type: ignore[return-value]

    def optimizer_state(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the optimizer state by parameter name, so that a run can resume on another number of processes."""
        whole: dict[str, Any] = full_state.get_optimizer_state_dict(network, optimizer, options=FULL_ON_CPU)
        return whole.get("state", {})  # nothing on the other processes

    def restore(
        self, network: nn.Module, optimizer: torch.optim.Optimizer, weights: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """Set what `weights` and the "state" of `optimizer_state` returned; the number of processes may differ."""
        names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        groups = [{**group, "params": names} for group in optimizer.state_dict()["param_groups"]]
        options = full_state.StateDictOptions(full_state_dict=True)
        full_state.set_model_state_dict(network, weights, options=options)
        full_state.set_optimizer_state_dict(
            network, optimizer, {"state": state, "param_groups": groups}, options=options
        )

    def from_leader(self, value: Any) -> Any:
        """Return the leader's value on every process."""
        if not self.many:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


@contextmanager
def joined(device: torch.device = CPU, store: Any = None, rank: int = -1, size: int = -1) -> Iterator[Processes]:
    """Join the process group of `torchrun`, or of `size` workers that share `store`; otherwise use one process."""
    if store is None and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes(device=device)
        return
    use_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(device), store=store, rank=rank, world_size=size)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
        # Gloo's threads live on while a sharded network refers to the group. One that still lets go of the tensors of
        # the last collective when Python ends would abort the process: here it can have Python's lock for that.
        time.sleep(0.2)
