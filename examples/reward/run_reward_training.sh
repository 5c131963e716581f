#!/usr/bin/env bash
# Train a success classifier on collected episodes:
#   bash examples/reward/run_reward_training.sh --data DIR [key=value ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../python.sh"
exec "$PYTHON" -m rewardlab.cli train-reward "$@"
