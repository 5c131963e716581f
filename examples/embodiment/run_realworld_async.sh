#!/usr/bin/env bash
# Train a policy on a robot by the name of its config:
#   bash examples/embodiment/run_realworld_async.sh NAME [key=value ...]
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run_embodiment.sh" "$@"
