#!/usr/bin/env bash
# Do what a config says, such as training a policy:
#   bash examples/embodiment/run_embodiment.sh NAME [key=value ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../python.sh"
exec "$PYTHON" -m rewardlab.cli run "$@"
