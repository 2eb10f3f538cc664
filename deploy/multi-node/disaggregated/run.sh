#!/bin/sh
# Eight B200: four read prompts, four write answers, joined by TensorRT-LLM's router.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

# These are TensorRT-LLM's own servers and router: this project's server does not speak to them.
here=deploy/multi-node/disaggregated
CUDA_VISIBLE_DEVICES=0,1,2,3 trtllm-serve "$CHECKPOINT" --host localhost --port 8001 \
    --config "$here/context.yaml" &
CUDA_VISIBLE_DEVICES=4,5,6,7 trtllm-serve "$CHECKPOINT" --host localhost --port 8002 \
    --config "$here/generation.yaml" &
trap 'kill $(jobs -p)' EXIT
# A first load takes minutes; the router would wait for 180 s.
trtllm-serve disaggregated -c "$here/router.yaml" --server_start_timeout 3600
