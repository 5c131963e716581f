"""The errors that are shown to users: one sentence that says what is wrong and what to do next."""


class RewardlabError(Exception):
    """An error that the user can fix. The command line prints its text without a traceback."""


class ConfigError(RewardlabError):
    """A key, a value or a name in a configuration is wrong."""


class DataError(RewardlabError):
    """A file, an array or an episode is not as expected."""


class StorageError(DataError):
    """A file could not be written: the disk is full, or the place is read-only."""
