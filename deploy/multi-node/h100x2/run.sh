#!/bin/sh
# One machine, two H100 or H200: the experts are shared out, MPI starts the second worker.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

python3 scripts/build_engine.py --checkpoint "$CHECKPOINT" --name gpt-oss-120b \
    --profile balanced --gpus 2
exec trt-responses serve --engine gpt-oss-120b
