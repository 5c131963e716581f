"""Names in a LeRobotDataset, and how its rows and ours belong together.

A row of a LeRobotDataset has the observation of frame t, the action taken in it, and in `next.*` what came of that
action. A row of an episode has frame t and the action that *led* to it, with its reward. So the columns in
`OF_TRANSITIONS` are one row earlier there than here, and all others are in the same row.
"""

from rewardlab.keys import INTERVENTION

INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
# Of rewardlab: what an episode knows and the data set has no place for. Others ignore the file.
FACTS = "meta/rewardlab.jsonl"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

REWARD, DONE, TRUNCATED, SUCCESS = "next.reward", "next.done", "next.truncated", "next.success"
ENV_REWARD = "next.env_reward"  # not LeRobot's: where the learner's reward is another one
# Ours, of transitions -> theirs.
OF_TRANSITIONS = {
    "action": "action",
    "reward": REWARD,
    "env_reward": ENV_REWARD,
    INTERVENTION: "complementary_info.is_intervention",
}
# The columns that every data set has.
INDEX_FEATURES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
