#!/bin/sh
# One machine, eight B200: every layer is split, for the shortest time per token.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

python3 scripts/build_engine.py --checkpoint "$CHECKPOINT" --name gpt-oss-120b \
    --profile latency --gpus 8
exec trt-responses serve --engine gpt-oss-120b
