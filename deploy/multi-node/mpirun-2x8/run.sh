#!/bin/sh
# Two machines with eight B200 each, started by Open MPI from the first of them.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

: "${HOSTS:?two host names, such as node1:8,node2:8}"
# Workers on other machines are started by mpirun, not by the server, so they are given the same
# cache directories, which must lie on a disk that all machines share.
launch() {
    rm -f "$OUTCOME"
    mpirun -n 16 --host "$HOSTS" --allow-run-as-root \
        -x TLLM_AUTOTUNER_CACHE_PATH -x TRITON_CACHE_DIR -x FLASHINFER_WORKSPACE_BASE -x OUTCOME \
        trtllm-llmapi-launch sh deploy/multi-node/outcome.sh "$@"
    status=$(cat "$OUTCOME" 2>/dev/null || echo 1)
    [ "$status" = 0 ] || exit "$status"
}
export TLLM_AUTOTUNER_CACHE_PATH="${CACHES:?a shared directory}/autotuner.json"
export TRITON_CACHE_DIR="$CACHES/triton" FLASHINFER_WORKSPACE_BASE="$CACHES/flashinfer"
export OUTCOME="$CACHES/outcome"

launch python3 scripts/build_engine.py --checkpoint "$CHECKPOINT" --name gpt-oss-120b \
    --profile throughput --gpus 16 --nodes 2
launch trt-responses serve --engine gpt-oss-120b
