#!/usr/bin/env bash
# Do what a config says, such as training a policy:
#   bash examples/embodiment/run_embodiment.sh NAME [key=value ...]
# NAME is a file of the folder config beside this script, or a name from `rewardlab config list`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../python.sh"
FILE="$EXAMPLES/embodiment/config/${1:-}.yaml"
if [ -f "$FILE" ]; then
    shift
    set -- "$FILE" "$@"
fi
exec "$PYTHON" -m rewardlab.cli run "$@"
