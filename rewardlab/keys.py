"""Names that cross folders: of the columns of an episode, and of facts in an environment's infos."""

STATE = "observation.state"
IMAGES = "observation.images."  # followed by the camera's name

# Of observations of tasks with goals, as Gymnasium-Robotics names them.
ACHIEVED_GOAL = "achieved_goal"
DESIRED_GOAL = "desired_goal"
STATE_NAMES = ("state", "observation")  # what environments call the state; it travels under the first

DEFAULT_CAMERA = "base_camera"

# Simulators disagree on the key; the package reads all of them and writes the first.
SUCCESS_KEYS = ("success", "is_success", "succeed")
GRASP_KEYS = ("grasp", "is_grasped")
