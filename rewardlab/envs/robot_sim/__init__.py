"""A simulated robot in a process of its own, behind the network protocol of a real one: `rewardlab robot-sim`."""
