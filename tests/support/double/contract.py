"""TensorRT-LLM's API as data: `tensorrt_llm.json` as names, defaults and signatures.

Release 1.2.1 is written out; "main" is the same with what was added to it later.
"""

from __future__ import annotations

import json
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Optional, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Version = Literal["1.2.1", "main"]
VERSIONS: tuple[Version, ...] = ("1.2.1", "main")
PATH = Path(__file__).with_name("tensorrt_llm.json")
NESTED = (
    "KvCacheConfig",
    "CudaGraphConfig",
    "MoeConfig",
    "SchedulerConfig",
    "TorchCompileConfig",
    "TelemetryConfig",
    "LoraConfig",
)
SIMPLE: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
}


class Entry(TypedDict, total=False):
    type: str
    default: object
    required: bool


@cache
def contract() -> dict[str, dict[str, dict[str, Entry]]]:
    """The whole file; its parts differ in shape, and each function below knows its own."""
    found: dict[str, dict[str, dict[str, Entry]]] = json.loads(PATH.read_text("utf-8"))
    return found


def numbers(part: str) -> dict[str, int]:
    """The whole numbers of a part that is a table of them."""
    return {k: v for k, v in dict[str, object](contract()[part]).items() if isinstance(v, int)}


def texts(part: str) -> dict[str, str]:
    return {k: v for k, v in dict[str, object](contract()[part]).items() if isinstance(v, str)}


def explicit_arguments() -> dict[str, Entry]:
    """Those that `LLM.__init__` names itself."""
    return contract()["LLM.__init__"]["explicit"]


def checked_arguments(version: Version) -> dict[str, Entry]:
    """Those that `TorchLlmArgs` checks: every keyword of `LLM`."""
    init = contract()["LLM.__init__"]
    found = {**init["explicit"], **init["kwargs_BaseLlmArgs"], **init["kwargs_TorchLlmArgs"]}
    if version == "main":
        found |= contract()["differences_newest_main"]["LLM_args_added"]
    return found


def sampling_fields(version: Version) -> dict[str, Entry]:
    added: dict[str, Entry] = {"thinking_token_budget": {"type": "int | None", "default": None}}
    return contract()["SamplingParams"]["fields"] | (added if version == "main" else {})


def guide_fields() -> dict[str, Entry]:
    return contract()["GuidedDecodingParams"]["fields"]


def scheduling_fields() -> dict[str, Entry]:
    return contract()["SchedulingParams"]["fields"]


def adapter_fields() -> dict[str, Entry]:
    """Those of the request that names an adapter."""
    return contract()["LoRARequest"]["fields"]


def statistics_fields() -> dict[str, Entry]:
    """Words of a step's statistics that the adapter reads."""
    return contract()["iteration_stats"]["fields"]


def call_parameters(version: Version) -> dict[str, Entry]:
    """Those of `generate_async`, in their order."""
    call = contract()["generate_async"]
    found = {name: call["parameters"][name] for name in call["positional_order"]}
    if version == "main":
        found |= contract()["differences_newest_main"]["generate_async_added"]
    return found


def result_names() -> frozenset[str]:
    """Fields and methods of a request's output."""
    part = contract()["RequestOutput"]
    spelled = {name for names in part["methods"] for name in names.split(" / ")}
    return frozenset(part["fields"]) | spelled


def output_names() -> frozenset[str]:
    part = contract()["CompletionOutput"]
    return frozenset(part["fields"]) | frozenset(part["properties"])


def method_names() -> frozenset[str]:
    return frozenset(contract()["LLM.methods"]["names"])


def nested_fields(name: str) -> dict[str, Entry]:
    return contract()[name]["fields"]


def keyword_only(fields: Iterable[str]) -> Signature:
    kind = Parameter.KEYWORD_ONLY
    return Signature([Parameter(name, kind, default=None) for name in fields])


def call_signature(version: Version) -> Signature:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return Signature(
        [
            Parameter(name, kind, default=Parameter.empty if entry.get("required") else None)
            for name, entry in call_parameters(version).items()
        ]
    )


def llm_signature() -> Signature:
    kind = Parameter.POSITIONAL_OR_KEYWORD
    named = [
        Parameter(name, kind, default=Parameter.empty if entry.get("required") else None)
        for name, entry in explicit_arguments().items()
    ]
    return Signature([*named, Parameter("kwargs", Parameter.VAR_KEYWORD)])


class Field:
    """A pydantic field, as far as the adapter looks: a nested configuration may be optional."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        names = [name.strip() for name in entry["type"].split("|")]
        nested = next((name for name in names if name in NESTED), None)
        self.nested = None if nested is None else nested_fields(nested)
        self.annotation: object = object
        if self.nested is not None:
            kind = type(nested or "", (), {"model_fields": self.nested})
            self.annotation = Optional[kind] if "None" in names else kind  # noqa: UP045  # as pydantic shows it

    def check(self, name: str, value: object) -> None:
        if isinstance(value, dict) and self.nested is not None:
            check_all(value, self.nested, f"{name}.")
        elif not lawful(self.entry["type"], value):
            raise ValueError(f"got invalid argument: {name}={value!r}, not {self.entry['type']}")


def check_all(given: Mapping[str, object], known: Mapping[str, Entry], prefix: str = "") -> None:
    """Unknown keywords and wrong simple types are refused, as the package's models refuse them."""
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"got invalid argument: {prefix}{name}")
        Field(known[name]).check(prefix + name, value)


def lawful(text: str, value: object) -> bool:
    """Whether a value fits a type as the contract writes it; what is not simple is let through."""
    names = [name.strip() for name in text.split("|")]
    if text.startswith("Literal[") or any(name not in SIMPLE and name != "None" for name in names):
        return not text.startswith("Literal[") or _in_literal(text, value)
    if value is None:
        return "None" in names
    if isinstance(value, bool):
        return "bool" in names
    return any(isinstance(value, SIMPLE[name]) for name in names if name != "None")


def _in_literal(text: str, value: object) -> bool:
    return (value is None and text.endswith("| None")) or f"'{value}'" in text
