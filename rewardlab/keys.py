"""Shared names of the columns of an episode, of the parts of an observation and of keys in an environment's infos."""

STATE = "observation.state"
IMAGES = "observation.images."  # followed by the camera's name
FRAME_ROWS = "frame_rows"  # the rows of an episode that have pictures; absent: all
UNSURE = "unsure"  # the rows of an episode that are neither a success nor a failure; absent: none

# Parts of the observations of tasks with goals, named as in Gymnasium-Robotics.
ACHIEVED_GOAL = "achieved_goal"
DESIRED_GOAL = "desired_goal"
STATE_NAMES = ("state", "observation", "states")  # names of the state in environments; the package uses the first

DEFAULT_CAMERA = "base_camera"
MAIN_IMAGES = "main_images"  # images of the default camera, beside the state, in observations of some environments

# Simulators use different keys; the package reads all of them and writes the first.
SUCCESS_KEYS = ("success", "is_success", "succeed")
GRASP_KEYS = ("grasp", "is_grasped")

# In infos of robots (`rewardlab.envs.robot.env`).
EXECUTED_ACTION = "executed_action"  # what was really done, in the place of the policy's action
INTERVENTION = "intervention"  # a person moved the robot in this step; also a column of episodes
DISCARD = "discard"  # the episode that ends is not to be kept
MESSAGE = "message"  # what a person should read; why an episode is not kept, unless a person asked for it
