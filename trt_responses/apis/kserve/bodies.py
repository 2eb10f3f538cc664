"""KServe's v2 protocol as values: tensors in and out, as JSON or as binary, and `generate`.

Triton has the same words. Knows no route, no run and no engine.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field, ValidationError

from trt_responses.errors import InvalidRequest, invalid_value
from trt_responses.features.rollout.bodies import LoadRequest, load_request_of
from trt_responses.frozen import dataclass
from trt_responses.wire.base import ListOf, NonEmpty, Options
from trt_responses.wire.choice import Effort
from trt_responses.wire.parse import fault_of, json_of, summary

Object = dict[str, Any]
UNNUMBERED = "1"
"""The version of a model whose engine has no number."""

INPUTS = {"text_input": "BYTES", "input_ids": "INT32"}
OUTPUTS = {"text_output": "BYTES", "output_ids": "INT32", "finish_reason": "BYTES"}
SHAPES = {"text_input": [1], "text_output": [1], "finish_reason": [1]}
ANY_LENGTH = [-1]
LENGTH = struct.Struct("<I")

CLIENT_ONLY = frozenset({"binary_data_output", "stream"})
"""Parameters that ask for a form of the reply, which is what the route and its header say."""


class Parameters(Options):
    """How an answer is made; the same names in `parameters` and beside the inputs."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    instructions: str | None = None
    reasoning_effort: Effort | None = None


class InputTensor(Options):
    """A tensor that a request brings."""

    name: NonEmpty
    shape: ListOf[int]
    datatype: str
    parameters: Object | None = None
    data: Any = None


class OutputTensor(Options):
    """A tensor that a request asks for."""

    name: NonEmpty
    parameters: Object | None = None


class InferBody(Options):
    """The JSON of an infer request."""

    inputs: Annotated[ListOf[InputTensor], Field(min_length=1)]
    outputs: ListOf[OutputTensor] | None = None
    id: str | None = None
    parameters: Object | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request wants: a text or the ids of a whole prompt, and how to answer it."""

    text: str | None
    ids: Sequence[int] | None
    parameters: Parameters
    id: str | None = None
    outputs: Mapping[str, bool] | None = None
    """The named outputs, each with whether its data is sent as binary; None for all outputs."""
    binary: bool = False
    """Whether outputs without a setting of their own are sent as binary."""


def generate_request(body: bytes) -> Wanted:
    """A request of `generate`: a flat object, whose keys are inputs and parameters."""
    sent = json_of(body)
    if not isinstance(sent, dict):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_value")
    name, text, ids = (sent.pop(key, None) for key in ("id", "text_input", "input_ids"))
    if name is not None and not isinstance(name, str):
        raise _invalid("id", "should be a string")
    nested = sent.pop("parameters", None) or {}
    if not isinstance(nested, dict):
        raise _invalid("parameters", "should be an object")
    text = text[0] if isinstance(text, list) and len(text) == 1 else text
    if text is not None and not isinstance(text, str):
        raise _invalid("text_input", "should be a string")
    if isinstance(ids, int):
        ids = [ids]
    return _wanted(text, None if ids is None else _ids(ids), nested | sent, id=name)


def infer_request(body: bytes, json_length: int | None) -> Wanted:
    """A request of `infer`. Binary data follow its JSON, `json_length` bytes long."""
    if json_length is not None and json_length > len(body):
        raise InvalidRequest(
            f"Inference-Header-Content-Length is {json_length}, and the body has {len(body)} bytes."
        )
    end = len(body) if json_length is None else json_length
    try:
        sent = InferBody.model_validate(json_of(body[:end]))
    except ValidationError as error:
        raise fault_of(error) from None
    values = _values(sent.inputs, body[end:])
    parameters = sent.parameters or {}
    binary = _flag(parameters, "binary_data_output")
    outputs = {o.name: _flag(o.parameters or {}, "binary_data") for o in sent.outputs or ()}
    for name in outputs:
        if name not in OUTPUTS:
            raise InvalidRequest(f"unexpected inference output '{name:.100}': {_among(OUTPUTS)}")
    return _wanted(
        values.get("text_input"),
        values.get("input_ids"),
        parameters,
        id=sent.id,
        outputs=outputs or None,
        binary=binary,
    )


def _wanted(text: Any, ids: Any, parameters: Object, **rest: Any) -> Wanted:
    if (text is None) == (ids is None):
        raise InvalidRequest("Send one of the inputs 'text_input' and 'input_ids'.")
    kept = {name: value for name, value in parameters.items() if name not in CLIENT_ONLY}
    try:
        options = Parameters.model_validate(kept)
    except ValidationError as error:
        raise fault_of(error) from None
    if ids is not None:
        for name in ("instructions", "reasoning_effort"):
            if getattr(options, name) is not None:
                raise _invalid(name, "belongs to 'text_input': a prompt of ids says it itself")
    return Wanted(text, ids, options, **rest)


def _values(inputs: Sequence[InputTensor], binary: bytes) -> Object:
    """Each input's value. Binary data stand in the order of the inputs that have them."""
    values: Object = {}
    at = 0
    for tensor in inputs:
        if (datatype := INPUTS.get(tensor.name)) is None:
            raise InvalidRequest(
                f"unexpected inference input '{tensor.name:.100}': {_among(INPUTS)}"
            )
        if tensor.name in values:
            raise InvalidRequest(f"input '{tensor.name}' comes twice")
        if tensor.datatype != datatype:
            raise InvalidRequest(
                f"input '{tensor.name}' has the datatype '{tensor.datatype:.20}', and "
                f"'{datatype}' is expected"
            )
        size = (tensor.parameters or {}).get("binary_data_size")
        if size is None:
            values[tensor.name] = _from_json(tensor)
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(binary) - at:
            raise InvalidRequest(
                f"input '{tensor.name}' has the binary_data_size {summary(size):.40}, and "
                f"{len(binary) - at} bytes are left"
            )
        values[tensor.name] = _from_binary(tensor, binary[at : at + size])
        at += size
    if at != len(binary):
        raise InvalidRequest(f"{len(binary) - at} bytes follow the last input")
    return values


def _from_json(tensor: InputTensor) -> Any:
    data = tensor.data
    if not isinstance(data, list):
        raise InvalidRequest(f"input '{tensor.name}' has no 'data'")
    while len(data) == 1 and isinstance(data[0], list):
        data = data[0]
    _check_shape(tensor, len(data))
    if tensor.datatype == "INT32":
        return _ids(data)
    if not isinstance(data[0], str):
        raise _invalid(tensor.name, "should be a string")
    return data[0]


def _from_binary(tensor: InputTensor, data: bytes) -> Any:
    if tensor.datatype == "INT32":
        if len(data) % 4:
            raise InvalidRequest(f"input '{tensor.name}': {len(data)} bytes are no INT32 values")
        _check_shape(tensor, len(data) // 4)
        return _ids(struct.unpack(f"<{len(data) // 4}i", data))
    _check_shape(tensor, 1)
    if len(data) < LENGTH.size or LENGTH.unpack_from(data)[0] != len(data) - LENGTH.size:
        raise InvalidRequest(f"input '{tensor.name}': expected one BYTES value, its length first")
    try:
        return data[LENGTH.size :].decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"input '{tensor.name}' is not UTF-8") from None


def _check_shape(tensor: InputTensor, count: int) -> None:
    """One text, or a row of ids; leading ones are a batch of one."""
    *ones, length = tensor.shape or [0]
    one_text = tensor.name in SHAPES and count != 1
    if any(one != 1 for one in ones) or length != count or count == 0 or one_text:
        raise InvalidRequest(
            f"input '{tensor.name}' has the shape {tensor.shape[:9]!r} and {count} values, and "
            f"the shape {SHAPES.get(tensor.name, ANY_LENGTH)} is expected"
        )


def _ids(values: Any) -> Sequence[int]:
    if not isinstance(values, list | tuple) or not values or set(map(type, values)) != {int}:
        raise _invalid("input_ids", "should be a list of token ids")
    return values


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise _invalid(name, "should be true or false")
    return value


def _invalid(param: str, expected: str) -> InvalidRequest:
    return invalid_value(param, f"it {expected}")


def _among(names: Mapping[str, str]) -> str:
    return f"this model has {', '.join(map(repr, names))}"


# --- what goes back -------------------------------------------------------------------------------


def load_request(body: bytes, number: str | None) -> LoadRequest:
    """What a load asks for: a version, where the path or the configuration names just one."""
    sent = json_of(body) if body.strip() else {}
    given = sent.get("parameters") if isinstance(sent, dict) else None
    if given is not None and not isinstance(given, dict):
        raise _invalid("parameters", "should be an object")
    for name, value in (given or {}).items():
        if name != "config":
            raise _invalid(name, "is not supported: this server loads only prepared versions")
        number = _version_in(value)
    return load_request_of({} if number is None else {"version": number})


def _version_in(config: object) -> str:
    parsed = json_of(config.encode()) if isinstance(config, str) else None
    match parsed:
        case {"version_policy": {"specific": {"versions": [version]}}, **others} if not others:
            return str(version)
    raise _invalid(
        "config", "takes one version, as {'version_policy': {'specific': {'versions': [3]}}}"
    )


def generated(model: str, version: str, wanted: Wanted, values: Object) -> bytes:
    """The reply of `generate`, and an event of `generate_stream`. As on Triton, a tensor of one
    element is a bare value."""
    named = {"id": wanted.id} if wanted.id else {}
    bare = {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in values.items()}
    return orjson.dumps(named | {"model_name": model, "model_version": version} | bare)


def inferred(model: str, version: str, wanted: Wanted, values: Object) -> tuple[bytes, int | None]:
    """The reply of `infer`, and the length of its JSON when binary data follow it."""
    outputs, binary = [], []
    for name in wanted.outputs or OUTPUTS:
        value = values[name]
        row = value if isinstance(value, list) else [value]
        tensor: Object = {"name": name, "datatype": OUTPUTS[name], "shape": [len(row)]}
        if wanted.binary if wanted.outputs is None else wanted.outputs[name]:
            binary.append(_packed(row))
            tensor["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            tensor["data"] = row
        outputs.append(tensor)
    named = {"id": wanted.id} if wanted.id else {}
    reply = named | {"model_name": model, "model_version": version, "outputs": outputs}
    head = orjson.dumps(reply)
    return head + b"".join(binary), len(head) if binary else None


def _packed(row: Sequence[Any]) -> bytes:
    if all(isinstance(value, int) for value in row):
        return struct.pack(f"<{len(row)}i", *row)
    texts = [value.encode() for value in row]
    return b"".join(LENGTH.pack(len(text)) + text for text in texts)


def metadata(model: str, versions: Sequence[str]) -> Object:
    """What a model takes and gives."""
    return {
        "name": model,
        "versions": list(versions),
        "platform": "trt_responses",
        "inputs": [_described(name, kind) for name, kind in INPUTS.items()],
        "outputs": [_described(name, kind) for name, kind in OUTPUTS.items()],
    }


def _described(name: str, datatype: str) -> Object:
    return {"name": name, "datatype": datatype, "shape": SHAPES.get(name, ANY_LENGTH)}


def config(model: str, engine: Mapping[str, object]) -> Object:
    """The same as Triton's ModelConfig; `engine` holds facts about the engine."""
    inputs = [
        {**_configured(name, datatype), "optional": True} for name, datatype in INPUTS.items()
    ]
    return {
        "name": model,
        "platform": "",
        "backend": "trt_responses",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": inputs,
        "output": [_configured(name, datatype) for name, datatype in OUTPUTS.items()],
        "instance_group": [],
        "model_transaction_policy": {"decoupled": False},
        "parameters": {
            f"engine_{key}": {"string_value": str(value)} for key, value in engine.items()
        },
    }


def _configured(name: str, datatype: str) -> Object:
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    return {"name": name, "data_type": kind, "dims": SHAPES.get(name, ANY_LENGTH)}
