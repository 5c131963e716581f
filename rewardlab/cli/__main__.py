"""`python -m rewardlab.cli`, for where the `rewardlab` command is not on the path."""

import sys

from rewardlab.cli import main

if not sys.flags.safe_path:
    # `python -m` puts the current directory first. As with the `rewardlab` command, nothing is imported from there
    # unless the user names it; `main` adds the directory then.
    del sys.path[0]
sys.exit(main())
