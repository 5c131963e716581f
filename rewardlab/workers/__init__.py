"""Workers: objects that also run in process, placed in groups and called through futures."""

from rewardlab.workers.cluster import Cluster, Seat
from rewardlab.workers.group import Future, Futures, Group, WorkerDied

__all__ = ["Cluster", "Future", "Futures", "Group", "Seat", "WorkerDied"]
