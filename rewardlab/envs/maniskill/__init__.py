"""ManiSkill's tasks, `maniskill/PickCube-v1` and the others: copies on the CPU, or one batch on a GPU."""
