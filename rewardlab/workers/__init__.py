"""Workers: plain Python objects that run in groups, in this process or on Ray, and are called through futures."""

from rewardlab.workers.cluster import Cluster, WorkerPlacement
from rewardlab.workers.group import Future, Futures, Group, WorkerDied

__all__ = ["Cluster", "Future", "Futures", "Group", "WorkerDied", "WorkerPlacement"]
