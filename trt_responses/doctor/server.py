"""Checks the port: free, this server's (then it sends one short request), or another program's.

It uses the `openai` client, as a user would.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from trt_responses.backends.keys import keys_in
from trt_responses.doctor.check import Check
from trt_responses.doctor.listening import why_not
from trt_responses.settings import Settings

LIST_S = 10.0
"""Timeout for the list of models: a listener that is silent for longer is another program."""
ANSWER_S = 120.0
QUESTION = "Say hello."
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}


def server_checks(settings: Settings) -> Iterator[Check]:
    """Whether the port of the settings is free, this server's, or another program's."""
    host = ANY_ADDRESS.get(settings.host, settings.host).strip("[]")
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        yield Check("port", "ok", f"{settings.host}: the system chooses a free port")
        return
    if why_not(host, settings.port) is not None:
        yield _free(settings.host.strip("[]"), settings.port, where)
        return
    keys = keys_in(settings)
    key = next(iter(keys.owners() if keys else ()), "none")
    yield Check("port", "note", f"{where} is in use: a server answers there")
    yield self_test(host, settings.port, key)


def _free(host: str, port: int, where: str) -> Check:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        remedy = "set TRT_RESPONSES_HOST or TRT_RESPONSES_PORT"
        return Check("port", "fault", f"{where} cannot be used ({error.strerror})", remedy)
    return Check("port", "ok", f"{where} is free")


def self_test(host: str, port: int, key: str) -> Check:
    """The check of a running server: it lists its models and makes one response."""
    try:
        import openai
    except ImportError:
        return Check("self-test", "note", "the openai package is missing", "run `make install`")
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    began = time.monotonic()
    try:
        with openai.OpenAI(
            base_url=f"http://{place}/v1", api_key=key, timeout=ANSWER_S, max_retries=0
        ) as client:
            models = client.with_options(timeout=LIST_S).models.list().data
            if not models:
                return Check("self-test", "fault", f"{place} lists no model")
            answer = client.responses.create(model=models[0].id, input=QUESTION, store=False)
    except openai.OpenAIError as error:
        return Check("self-test", "fault", f"{place} did not answer: {error}")
    except (AttributeError, TypeError, ValueError) as error:  # another API answers there
        return Check("self-test", "fault", f"{place} answered something else ({error})")
    seconds = time.monotonic() - began
    used = answer.usage.output_tokens if answer.usage else 0
    outcome = f"{answer.model} on {place}: {answer.status}, {used} tokens in {seconds:.1f} s"
    return Check("self-test", "ok" if answer.status == "completed" else "fault", outcome)
