"""The child process: hosts llama.cpp's server, and never outlives its parent.

One line of JSON comes in on stdin, one goes out on stdout when the model is loaded; after that
stdin only tells, by its end, that the parent is gone. Imports nothing of this package, and is run
by its path, so that a child costs no more than the engine itself.
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
    """The settings that the parent sends."""

    parent: int
    model_path: str
    api_key: str
    api_prefix: str
    context_tokens: int
    slots: int
    threads: int
    adapters: list[str]
    """The paths of the adapters. A request names one by its place here."""


def main() -> None:
    """Load the model, say so, and serve until the parent is gone."""
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
    """Have the kernel end this process with its parent, also with one that was killed, where Linux
    can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the line above
        os._exit(0)


def _exit_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)  # the server's threads have nothing to save, and may be busy


def _params(settings: Settings) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = settings["model_path"]
    params.n_ctx = settings["context_tokens"] * settings["slots"]  # divided over the slots
    params.n_parallel = settings["slots"]
    params.fit_params = False  # it would choose other sizes than the ones we promise
    params.lora_adapters = [
        xllamacpp.CommonAdapterLoraInfo(path, 0.0) for path in settings["adapters"]
    ]
    params.lora_init_without_apply = True  # each request says which one it wants
    _closed(params, settings)
    _own_cache_per_slot(params)
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        cpu.poll = 0  # waiting threads sleep: spinning ones take the cores the parent needs
    params.n_threads_http = 2 * settings["slots"] + 4  # a stream holds one; leave some for probes
    return params


def _closed(params: xllamacpp.CommonParams, settings: Settings) -> None:
    """Close what a client could reach: listen on the loopback alone, behind a key and a secret
    path, and with every endpoint off that has a switch."""
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
    params.sse_ping_interval = -1  # a ping would hide an engine that stands still


def _own_cache_per_slot(params: xllamacpp.CommonParams) -> None:
    """Give each slot a prefix cache of its own, since owners must not share one."""
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_cache_reuse = 0
    params.slot_prompt_similarity = 0.0
    params.swa_full = True  # a windowed cache cannot go back to where a segment was cut
    params.n_ctx_checkpoints = 0  # which a full one does not need


if __name__ == "__main__":
    main()
