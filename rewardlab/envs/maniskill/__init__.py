"""ManiSkill's tasks as single environments on the CPU: `maniskill/PickCube-v1` and every other task it registers."""
