"""llama.cpp's server, by its wheel `xllamacpp`: its model is forced, for it has no other engine.

`python -m responses_conformance.mocks.llama_cpp GGUF PORT` needs a model with gpt-oss's vocabulary,
such as this project's demo. Its parser is chosen by the marks in the chat template.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from responses_conformance.mocks.play import END_IDS

if TYPE_CHECKING:
    from responses_conformance.transcripts import Transcript

TEMPLATE = """\
<|start|>system<|message|># Valid channels: analysis, commentary, final.<|end|>\
{% for m in messages %}{% if m.role == 'assistant' %}{% if m.thinking %}\
<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}\
<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% else %}\
<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}\
{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
MOST_IDS = 25
"""A forced id takes half a second: every id of the vocabulary is tried."""


def forced(transcript: Transcript) -> dict[str, Any]:
    """What a request says beside, for the model to write these ids: a grammar of ids. Its end is
    chosen by the model, among the ids that end."""
    ids = [each for each in transcript.ids if each not in END_IDS]
    return {"grammar": "root ::= " + " ".join(f"<[{each}]>" for each in ids)}


def takes(transcript: Transcript) -> bool:
    """Whether it can be forced: a grammar is refused beside tools, and needs an id."""
    plain = transcript.finish == "stop" and not transcript.tools
    return plain and bool(set(transcript.ids) - set(END_IDS)) and len(transcript.ids) <= MOST_IDS


def main(model: str, port: int) -> None:
    import xllamacpp

    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.hostnames, wanted.port = ["127.0.0.1"], port
    wanted.n_ctx, wanted.n_parallel = 1024, 1
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1  # several wait for each other
    wanted.use_jinja, wanted.chat_template = True, TEMPLATE
    server = xllamacpp.Server(wanted)
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
