"""The child process: runs llama.cpp's server, and never outlives its parent.

It reads one line of JSON on stdin and writes one on stdout when the model is loaded; after that the
end of stdin means that the parent is gone. It imports nothing of this package and is run by path,
so that a child costs no more than the engine itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from typing import TypedDict

import xllamacpp

PR_SET_PDEATHSIG = 1


class Settings(TypedDict):
    """The settings from the parent."""

    parent: int
    model_path: str
    api_key: str
    api_prefix: str
    context_tokens: int
    slots: int
    threads: int
    adapters: list[str]
    """The paths of the adapters; a request names one by its index."""
    saves: bool
    """Whether it inherits files to save the states of slots to."""


def main() -> None:
    """Load the model, report that, and serve until the parent is gone."""
    settings: Settings = json.loads(sys.stdin.readline())
    _die_with(settings["parent"])
    watch = threading.Thread(target=_exit_at_end_of_input, daemon=True)
    watch.start()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the server prints must not reach the readiness line
    server = xllamacpp.Server(_params(settings))
    answer.write(json.dumps({"address": server.listening_address}) + "\n")
    answer.flush()
    watch.join()


def _die_with(parent: int) -> None:
    """On Linux, have the kernel kill this process when its parent dies, even by SIGKILL."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _exit_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)  # the server's threads have nothing to save, and may be busy


def _params(settings: Settings) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = settings["model_path"]
    params.n_ctx = settings["context_tokens"] * settings["slots"]  # divided over the slots
    params.n_parallel = settings["slots"]
    params.fit_params = False  # it would choose other sizes than the engine's limits
    params.lora_adapters = [
        xllamacpp.CommonAdapterLoraInfo(path, 0.0) for path in settings["adapters"]
    ]
    params.lora_init_without_apply = True  # each request selects one
    _closed(params, settings)
    _own_cache_per_slot(params)
    if settings["saves"]:
        params.slot_save_path = "/proc/self/fd/"  # a file's name is its number
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        cpu.poll = 0  # waiting threads sleep: spinning ones would take the parent's cores
    params.n_threads_http = 2 * settings["slots"] + 4  # a stream holds one; leave some for probes
    return params


def _closed(params: xllamacpp.CommonParams, settings: Settings) -> None:
    """Restrict access: listen on the loopback only, require a key and a secret path, and switch off
    optional endpoints."""
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["api_key"]]
    params.api_prefix = settings["api_prefix"]
    params.cors_origins = ""
    params.cors_credentials = False
    params.ui = False
    params.ui_mcp_proxy = False
    params.endpoint_slots = False
    params.endpoint_props = False
    params.endpoint_metrics = False
    params.sse_ping_interval = -1  # a ping would hide a stalled engine


def _own_cache_per_slot(params: xllamacpp.CommonParams) -> None:
    """Give each slot its own prefix cache, since owners must not share one."""
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_cache_reuse = 0
    params.slot_prompt_similarity = 0.0
    params.swa_full = True  # a windowed cache cannot be rewound to the cut of a segment
    params.n_ctx_checkpoints = 0  # not needed with a full cache


if __name__ == "__main__":
    main()
