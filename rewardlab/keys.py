"""Names that cross folders: of the columns of an episode, and of facts in an environment's infos."""

STATE = "observation.state"
IMAGES = "observation.images."  # followed by the camera's name

DEFAULT_CAMERA = "base_camera"

# Simulators disagree on the key; the package reads all of them and writes the first.
SUCCESS_KEYS = ("success", "is_success", "succeed")
GRASP_KEYS = ("grasp", "is_grasped")
