"""Creates the engines of servers over HTTP: vLLM, SGLang and llama.cpp's."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from trt_responses.backends.dialects import vocabulary
from trt_responses.backends.installed import needed
from trt_responses.engines.id_events import GPT_OSS, ModelIds
from trt_responses.engines.stand_ins import StandIns

if TYPE_CHECKING:
    from trt_responses.backends.elsewhere import Elsewhere
    from trt_responses.dialect import Dialect
    from trt_responses.engines.http_engine import HttpEngine

SERVERS = {"vllm": "vLLM", "sglang": "SGLang", "llama-server": "llama.cpp", "http": "HTTP"}
"""The names of the servers by their scheme; `http`: which one it is shows at the start."""
KEYS = {"vllm": "VLLM_API_KEY", "sglang": "SGLANG_API_KEY", "llama-server": "LLAMA_API_KEY"}
"""The variables of their keys; vLLM and llama.cpp read the same ones."""
START = {
    "vllm": "vllm serve MODEL --enable-scale-out",
    "sglang": "sglang serve --model-path MODEL",
    "llama-server": "llama-server -m MODEL.gguf --parallel 4",
    "http": "vllm serve MODEL --enable-scale-out",
}
"""The commands that start them."""


def scheme_of(kind: str) -> str:
    """The server's kind in the scheme of a URL: `vllm`, also in `vllm+https` and `vllm=http`."""
    return "http" if kind == "https" else re.split("[+=]", kind)[0]


def ids_of(dialect: Dialect) -> ModelIds:
    """The ids that an engine over HTTP must know of a model."""
    places = getattr(dialect, "places", None)
    if places is None:
        return GPT_OSS
    return ModelIds(places.stops, places.stops[:1], None)


def http_at(elsewhere: Elsewhere, start_s: float, ids: ModelIds = GPT_OSS) -> HttpEngine:
    """The engine of one of these servers at `host:port` or `host:port/model`. `ids`: those of a
    model other than gpt-oss."""
    scheme = scheme_of(elsewhere.kind)
    with needed(f"The engine of {SERVERS[scheme]} servers"):
        from trt_responses.engines.distant import Patience
        from trt_responses.engines.http_engine import HttpEngine
        from trt_responses.engines.http_server import address_of

        address = address_of(elsewhere.place, tls=elsewhere.kind.endswith("https"))
        keys = [KEYS[scheme]] if scheme in KEYS else KEYS.values()
        key = next(filter(None, map(os.environ.get, keys)), "")
        patience = Patience(start_s=start_s)
        if scheme == "vllm":
            from trt_responses.engines.vllm.wire import VllmWire

            return HttpEngine(address, VllmWire(ids), patience, key=key, probe=ids.probe)
        if scheme == "sglang":
            from trt_responses.engines.sglang.wire import SglangWire

            return HttpEngine(address, SglangWire(ids), patience, key=key, probe=ids.probe)
        from trt_responses.engines.llamacpp.server import LlamaServerEngine
        from trt_responses.engines.llamacpp.server_wire import LlamaServerWire

        wire = LlamaServerWire(StandIns(vocabulary()))
        if scheme == "llama-server":
            return LlamaServerEngine(address, wire, patience, key=key)
        from trt_responses.engines.sglang.wire import SglangWire
        from trt_responses.engines.vllm.wire import VllmWire

        others = (wire, SglangWire())
        return LlamaServerEngine(address, VllmWire(), patience, others=others, key=key)
