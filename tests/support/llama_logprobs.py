"""Run as a child: one prompt through llama.cpp, its log probabilities over the whole vocabulary.

Exact as llama.cpp can be: float32 cache, no flash attention. A child, since a bad file aborts it.
"""

from __future__ import annotations

import json
import sys
import urllib.request

import numpy as np
import xllamacpp


def main(model: str, target: str, token_ids: list[int]) -> None:
    server = xllamacpp.Server(parameters(model))
    body = {
        "prompt": token_ids,
        "n_predict": 1,
        "n_probs": 201_088,
        "temperature": -1,  # below zero: greedy, with log probabilities from a plain softmax
        "top_k": 0,
        "min_p": 0,
        "cache_prompt": False,
    }
    request = urllib.request.Request(
        f"{server.listening_address}/completion",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        entries = json.load(answer)["completion_probabilities"][0]["top_logprobs"]
    row = np.full(201_088, np.nan, np.float32)
    row[[entry["id"] for entry in entries]] = [entry["logprob"] for entry in entries]
    np.save(target, row)


def parameters(model: str) -> xllamacpp.CommonParams:
    found = xllamacpp.CommonParams()
    found.model.path = model
    found.n_ctx, found.n_parallel = 1024, 1
    found.cpuparams.n_threads = 1
    found.port = 0
    found.warmup = False
    found.cache_type_k = found.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    found.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
