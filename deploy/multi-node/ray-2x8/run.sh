#!/bin/sh
# Two machines with eight H100 or H200 each, under Ray: a prototype of TensorRT-LLM's.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

# On both machines, first: python3 -m pip install 'ray[default]'
command -v ray >/dev/null || { echo "Ray is not installed: run python3 -m pip install 'ray[default]'" >&2; exit 1; }

# On the second machine, before this: ray start --address="$HEAD:6379" --num-gpus=8
ray start --head --port=6379 --num-gpus=8

python3 scripts/build_engine.py --checkpoint "$CHECKPOINT" --name gpt-oss-120b \
    --profile balanced --gpus 16 --nodes 2 --set orchestrator_type='"ray"'
exec trt-responses serve --engine gpt-oss-120b
