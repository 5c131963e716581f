"""What the user sees when something is wrong: one sentence that says what to do next."""


class RewardlabError(Exception):
    """An error the user can act on. The command line prints its text alone, without a traceback."""


class ConfigError(RewardlabError):
    """A key, a value or a name in a configuration is wrong."""


class DataError(RewardlabError):
    """A file, an array or an episode is not what it should be."""
