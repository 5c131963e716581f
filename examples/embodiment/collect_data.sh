#!/usr/bin/env bash
# Collect labelled episodes as a config says; the default one is of a robot:
#   bash examples/embodiment/collect_data.sh [NAME] [key=value ...]
set -euo pipefail
if [ $# -eq 0 ] || [[ "$1" == *=* ]]; then
    set -- realworld_collect_data "$@"
fi
exec "$(dirname "${BASH_SOURCE[0]}")/run_embodiment.sh" "$@"
