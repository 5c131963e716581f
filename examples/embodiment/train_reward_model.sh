#!/usr/bin/env bash
# Train a BinaryRewardClassifier on positive and negative trajectories. Any argument can be given again to replace it:
#   bash examples/embodiment/train_reward_model.sh --positive-dir DIR --negative-dir DIR --output-checkpoint FILE.pt
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../python.sh"
PRETRAINED=()
[ ! -f ./resnet10_pretrained.pt ] || PRETRAINED=(--pretrained-encoder-path ./resnet10_pretrained.pt)
exec "$PYTHON" -m rewardlab.train_reward_model \
    --positive-dir ./reward_data/positive \
    --negative-dir ./reward_data/negative \
    --output-checkpoint ./checkpoints/reward_model.pt \
    "${PRETRAINED[@]}" \
    --backbone resnet10 \
    --image-key base_camera \
    --image-size 3 64 64 \
    --batch-size 128 \
    --epochs 30 \
    --lr 1e-4 \
    --hidden-dim 256 \
    --num-spatial-blocks 8 \
    "$@"
