"""The adapter uses only names that the contract has; and the stand-in keeps the contract's traps.

Budget: 2 s on one core.
"""

from __future__ import annotations

import array
import ast
import asyncio
import builtins
import collections.abc
import hashlib
import inspect
import itertools
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.differences import changes, differences
from tests.support.double import contract as names
from tests.support.double.llm import Double, RequestError
from tests.support.double.results import Fail, Hang, Script
from trt_responses.engine import Chunk
from trt_responses.engines.trtllm import api
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from tests.support.double.contract import Version
    from tests.support.double.results import RequestOutput

PACKAGE = Path(__file__).parents[4] / "trt_responses"
ADAPTER = [
    *sorted((PACKAGE / "engines" / "trtllm").glob("[!_]*.py")),
    PACKAGE / "engines" / "ask.py",
]
OURS = [
    *ADAPTER,
    PACKAGE / "engine.py",
    PACKAGE / "engines" / "admission.py",
    PACKAGE / "errors.py",
    PACKAGE / "tokens" / "control.py",
]
LIBRARY = (
    *(asyncio, builtins, inspect, itertools, logging, os, threading, time, collections.abc),
    *(asyncio.Task, asyncio.Future, asyncio.Event, asyncio.AbstractEventLoop, logging.Logger),
    *(threading.Thread, inspect.Parameter, inspect.Signature, collections.abc.MutableMapping),
    *(array.array, collections.OrderedDict, hashlib, hashlib.blake2b()),
    *(str, list, dict, set, frozenset, tuple, type, BaseException, Chunk),
)
ENVIRONMENT = {"TRTLLM_NO_USAGE_STATS", "TELEMETRY_DISABLED", "DO_NOT_TRACK"}
GUIDE_KINDS = {"json_schema", "regex"}


def in_contract(version: Version = "main") -> frozenset[str]:
    """Every name that the package has, in whatever place."""
    nested = (names.nested_fields(name) for name in names.NESTED)
    return frozenset().union(
        names.checked_arguments(version),
        names.sampling_fields(version),
        names.guide_fields(),
        names.scheduling_fields(),
        names.adapter_fields(),
        names.statistics_fields(),
        names.call_parameters(version),
        names.result_names(),
        names.output_names(),
        names.method_names(),
        {"LLM", "SamplingParams", "GuidedDecodingParams", "TorchLlmArgs", "__version__"},
        {"SchedulingParams", "LoRARequest", "TokenRangeRetentionConfig"},
        {"logprob", "rank", "model_fields", "annotation"},
        *nested,
    )


# --- the adapter --------------------------------------------------------------------------------


def attributes(source: str) -> set[str]:
    """Every name that is read or called after a dot."""
    return {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}


def keywords(source: str) -> set[str]:
    """Every string that is a key: of a dict in the text, or between brackets."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        keys: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            keys = node.keys
        elif isinstance(node, ast.Subscript):
            keys = [node.slice]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "pop"):
            keys = list(node.args[:1])
        constants = [key.value for key in keys if isinstance(key, ast.Constant)]
        found |= {value for value in constants if isinstance(value, str)}
    return found


def defined(source: str) -> set[str]:
    """Every name that a file defines: functions, classes, fields, attributes of self."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


def strangers(source: str) -> set[str]:
    """Attribute names that are neither ours, nor Python's, nor the contract's."""
    api_file = (
        PACKAGE / "engines" / "trtllm" / "api.py"
    )  # it spells theirs, so it vouches for nothing
    ours = set().union(*(defined(p.read_text("utf-8")) for p in OURS if p != api_file))
    ours |= {"version", "llm", "sampling_params", "guided_decoding_params", "argument_fields"}
    ours |= {"scheduling_params", "lora_request", "retention_config"}
    library = set().union(*(dir(thing) for thing in LIBRARY))
    return attributes(source) - ours - library - in_contract()


@pytest.mark.parametrize("path", ADAPTER, ids=lambda path: path.stem)
def test_every_attribute_the_adapter_uses_is_ours_pythons_or_the_contracts(path: Path) -> None:
    assert strangers(path.read_text("utf-8")) == set()


def test_the_scan_finds_a_name_that_the_contract_lacks() -> None:
    assert strangers("result.outputs[0].finish_cause") == {"finish_cause"}
    assert strangers("result.outputs[0].finish_reason") == set()


@pytest.mark.parametrize("path", ADAPTER, ids=lambda path: path.stem)
def test_every_keyword_the_adapter_says_is_in_the_contract(path: Path) -> None:
    said = keywords(path.read_text("utf-8")) - ENVIRONMENT - GUIDE_KINDS
    assert said - in_contract() - {"", "stop", "length"} == set()


def test_each_kind_of_word_is_in_its_own_part_of_the_contract() -> None:
    assert api.SamplingArguments.__annotations__.keys() <= names.sampling_fields("1.2.1").keys()
    assert api.GuideArguments.__annotations__.keys() <= names.guide_fields().keys()
    scheduling = api.SchedulingArguments.__annotations__.keys()
    assert scheduling <= names.scheduling_fields().keys()
    assert api.LoraArguments.__annotations__.keys() == names.adapter_fields().keys()
    call = api.CallArguments.__annotations__.keys()
    assert call <= names.call_parameters("main").keys()
    assert call - names.call_parameters("1.2.1").keys() == {"priority"}


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (api.RequestOutput, names.result_names()),
        (api.CompletionOutput, names.output_names()),
        (api.LLM, names.method_names()),
    ],
)
def test_what_the_adapter_expects_of_their_objects_is_in_the_contract(
    kind: type, known: frozenset[str]
) -> None:
    members = {name for name in vars(kind) if not name.startswith("_")}
    assert members
    assert members <= known


def test_the_errors_that_are_known_by_name_are_in_the_contract() -> None:
    assert api.FATAL | {api.REFUSED} <= names.contract()["errors"].keys()


def test_the_guides_end_and_the_stops_are_the_contracts_ids() -> None:
    told = names.numbers("harmony_tokens")
    theirs = {n: told[n] for n in ("start", "end", "message", "channel", "call", "constrain")}
    assert theirs == {n: getattr(CONTROL, n) for n in theirs}
    assert told["return"] == CONTROL.return_


def imports(path: Path) -> dict[str, bool]:
    """Modules that a file imports, and whether it does so when it is loaded."""
    tree = ast.parse(path.read_text("utf-8"))
    top = set(map(id, tree.body))
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found[node.module] = id(node) in top
        elif isinstance(node, ast.Import):
            found |= {alias.name: id(node) in top for alias in node.names}
    return found


def test_one_file_imports_the_package_and_only_when_the_engine_starts() -> None:
    where = {
        (path.relative_to(PACKAGE).as_posix(), at_load)
        for path in PACKAGE.rglob("*.py")
        for module, at_load in imports(path).items()
        if module.split(".")[0] == "tensorrt_llm"
    }
    assert where == {("engines/trtllm/engine.py", False)}


def test_what_is_imported_stands_where_the_contract_says() -> None:
    tree = ast.parse((PACKAGE / "engines" / "trtllm" / "engine.py").read_text("utf-8"))
    found = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorrt_llm")
        for alias in node.names
    }
    modules = names.texts("modules")
    assert found
    assert {name: modules[name] for name in found} == found


# --- the stand-in -------------------------------------------------------------------------------


def says(*steps: tuple[int, ...] | Hang | Fail, version: Version = "1.2.1") -> Double:
    return Double(lambda prompt_ids, params: Script(steps), version)


def request(double: Double, **words: object) -> RequestOutput:
    """One request in the package's own words, without the adapter."""
    package = double.package()
    llm = package.llm(model="m", skip_tokenizer_init=True)
    words = {"end_id": CONTROL.return_, "max_tokens": 100, **words}
    params = package.sampling_params(**words)
    found = llm.generate_async([1, 2], sampling_params=params, streaming=True)
    assert found is double.requests[-1]
    return double.requests[-1]


@pytest.mark.parametrize("version", names.VERSIONS)
def test_the_stand_in_has_the_contracts_signatures(version: Version) -> None:
    package = says(version=version).package()
    llm = package.llm(model="m")
    assert list(inspect.signature(llm.generate_async).parameters) == list(
        names.call_parameters(version)
    )
    assert ("priority" in inspect.signature(llm.generate_async).parameters) is (version == "main")
    sampling = inspect.signature(package.sampling_params).parameters
    assert sampling.keys() == names.sampling_fields(version).keys()
    assert {p.kind for p in sampling.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert package.argument_fields.keys() == names.checked_arguments(version).keys()
    explicit = set(inspect.signature(package.llm).parameters) - {"kwargs"}
    assert explicit == names.explicit_arguments().keys()


def test_the_stand_in_has_the_contracts_defaults() -> None:
    params = says().package().sampling_params()
    for name, entry in names.sampling_fields("1.2.1").items():
        assert getattr(params, name) == entry["default"]


def test_an_unknown_argument_is_refused_everywhere() -> None:
    package = says().package()
    with pytest.raises(ValueError, match="invalid argument"):
        package.llm(model="m", unknown=1)
    with pytest.raises(TypeError, match="top_logprobs"):
        package.sampling_params(top_logprobs=1)
    with pytest.raises(TypeError, match="priority"):
        package.llm(model="m").generate_async([1], priority=0.5)


def test_a_matched_stop_id_is_trimmed_unless_it_is_to_be_included() -> None:
    async def run(include: bool) -> list[int]:
        result = request(
            says((5, CONTROL.call)),
            stop_token_ids=[CONTROL.call],
            include_stop_str_in_output=include,
        )
        output = (await result.aresult()).outputs[0]
        assert (output.finish_reason, output.stop_reason) == ("stop", CONTROL.call)
        return output.token_ids

    assert asyncio.run(run(False)) == [5]
    assert asyncio.run(run(True)) == [5, CONTROL.call]


def test_the_end_id_stays_and_names_no_reason() -> None:
    async def run() -> None:
        output = (await request(says((5,))).aresult()).outputs[0]
        assert output.token_ids == [5, CONTROL.return_]
        assert (output.finish_reason, output.stop_reason) == ("stop", None)

    asyncio.run(run())


def test_each_step_yields_the_same_object_with_none_to_many_new_ids() -> None:
    async def run() -> None:
        seen = [
            (id(step), id(step.outputs[0]), len(step.outputs[0].token_ids))
            async for step in request(says((1,), (), (2, 3, 4)), max_tokens=4)
        ]
        assert [length for *_, length in seen] == [1, 1, 4]
        assert len({entry[:2] for entry in seen}) == 1

    asyncio.run(run())


def test_a_cancelled_request_ends_with_cancelled() -> None:
    async def run() -> None:
        result = request(says((1,), Hang()))
        await anext(result)
        result.abort()
        await result.aresult()
        assert result.outputs[0].finish_reason == "cancelled"
        assert (result.finished, result.aborted()) == (True, True)

    asyncio.run(run())


def test_a_result_that_raised_hangs_when_it_is_awaited_again() -> None:
    async def run() -> Double:
        double = says(Fail(RequestError("late")))
        result = request(double)
        with pytest.raises(RequestError, match="late"):
            await result.aresult()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(result.aresult(), 0.01)
        assert not result.finished
        return double

    assert asyncio.run(run()).misuse == ["a result that had raised was awaited again"]


def test_a_dead_worker_answers_nothing_not_even_an_abort() -> None:
    async def run() -> None:
        double = says((1,))
        double.dead = True
        result = request(double)
        result.abort()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(result.aresult(), 0.01)

    asyncio.run(run())


def test_sampling_parameters_serve_one_request() -> None:
    async def run() -> Double:
        double = says((1,))
        package = double.package()
        llm = package.llm(model="m")
        params = package.sampling_params(end_id=1, max_tokens=1)
        for _ in range(2):
            llm.generate_async([1], sampling_params=params)
        return double

    assert asyncio.run(run()).misuse == ["one SamplingParams object served two requests"]


def test_without_an_end_id_and_a_tokenizer_a_request_is_refused() -> None:
    async def run() -> None:
        with pytest.raises(ValueError, match="end_id"):
            request(says((1,)), end_id=None)
        guide = says().package().guided_decoding_params(regex="a")
        with pytest.raises(ValueError, match="tokenizer"):
            request(says((1,)), guided_decoding=guide)

    asyncio.run(run())


def test_two_guides_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="Only one"):
        says().package().guided_decoding_params(regex="a", json="{}")


# --- what the live tests compare first -----------------------------------------------------------


@pytest.mark.parametrize("version", names.VERSIONS)
def test_the_comparison_with_an_installed_package_finds_nothing_on_the_stand_in(
    version: Version,
) -> None:
    package = says(version=version).package()
    llm = package.llm(model="m")
    assert differences(package, llm.generate_async, version) == []
    assert changes(package, version) == []


def test_the_comparison_names_what_an_installed_package_lacks() -> None:
    package = says(version="1.2.1").package()
    fields = {k: v for k, v in package.argument_fields.items() if k != "moe_config"}

    async def coroutine(prompt: list[int]) -> None: ...

    package = replace(package, argument_fields=fields, sampling_params=lambda end_id: end_id)
    found = differences(package, coroutine, "1.2.1")
    assert {
        "LLM: no moe_config",
        "SamplingParams: no stop_token_ids",
        "generate_async: no cache_salt",
        "generate_async: inputs is not its first parameter",
        "generate_async: it is a coroutine function",
    } <= set(found)
    assert "LLM: moe_config went" in changes(package, "1.2.1")
    assert "LLM: telemetry_config is new" in changes(says(version="main").package(), "1.2.1")
