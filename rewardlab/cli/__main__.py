"""`python -m rewardlab.cli`, for where the `rewardlab` command is not on the path."""

import sys

from rewardlab.cli import main

sys.exit(main())
