"""Episodes: on disk in several formats, collected from environments, inspected and converted."""

from rewardlab.data.collector import EpisodeCollector
from rewardlab.data.contact_sheet import draw_contact_sheet
from rewardlab.data.convert import convert_episodes
from rewardlab.data.episodes import Episode
from rewardlab.data.formats import FORMATS
from rewardlab.data.inspection import Problem, summarize, verify
from rewardlab.data.reader import StoredEpisode, read_episodes
from rewardlab.data.reward_collector import RewardDataCollector
from rewardlab.data.writer import BackgroundWriter, EpisodeWriter

__all__ = [
    "FORMATS",
    "BackgroundWriter",
    "Episode",
    "EpisodeCollector",
    "EpisodeWriter",
    "Problem",
    "RewardDataCollector",
    "StoredEpisode",
    "convert_episodes",
    "draw_contact_sheet",
    "read_episodes",
    "summarize",
    "verify",
]
