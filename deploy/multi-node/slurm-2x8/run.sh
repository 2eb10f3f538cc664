#!/bin/sh
# Two machines with eight H100 or H200 each, under Slurm: `sbatch -N 2 --ntasks-per-node=8 run.sh`.
# Not run by this project: it follows TensorRT-LLM's own documents. Read it before you use it.
set -eu
cd "$(dirname "$0")/../../.."
: "${CHECKPOINT:?names the directory of the Hugging Face checkpoint}"

# Workers on other machines are started by srun, not by the server, so they are given the same
# cache directories, which must lie on a disk that all machines share.
launch() {
    rm -f "$OUTCOME"
    srun -N 2 -n 16 --ntasks-per-node=8 --mpi=pmix --export=ALL \
        trtllm-llmapi-launch sh deploy/multi-node/outcome.sh "$@"
    status=$(cat "$OUTCOME" 2>/dev/null || echo 1)
    [ "$status" = 0 ] || exit "$status"
}
export TLLM_AUTOTUNER_CACHE_PATH="${CACHES:?a shared directory}/autotuner.json"
export TRITON_CACHE_DIR="$CACHES/triton" FLASHINFER_WORKSPACE_BASE="$CACHES/flashinfer"
export OUTCOME="$CACHES/outcome"

launch python3 scripts/build_engine.py --checkpoint "$CHECKPOINT" --name gpt-oss-120b \
    --profile balanced --gpus 16 --nodes 2
launch trt-responses serve --engine gpt-oss-120b
