"""Models with a chat template for TensorRT-LLM: prepared, refused and served over the stand-in for
its package, which shows nothing of the package itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.asgi import Client, living
from tests.support.double.lab import GPU_HOST, LAPTOP, Lab
from tests.support.double.llm import nothing_ignored
from tests.support.double.results import Script
from tests.support.served import SETTINGS
from tests.support.story import story
from tests.support.tiny_hf import CONFIG, ROWS, write_tiny_hf
from trt_responses.app import create_app
from trt_responses.backends.dialects import dialect_facts, dialect_of, prompts_of, template_dialect
from trt_responses.doctor.engines import dialect_checks
from trt_responses.engines.ask import CANARY
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import DIALECT
from trt_responses.prepare.hardware import gpu_facts
from trt_responses.prepare.machine import ServingMachine
from trt_responses.prepare.shelf.card import compare, read_card
from trt_responses.prepare.trtllm.arguments import read_arguments
from trt_responses.prepare.trtllm.model import open_model
from trt_responses.prepare.trtllm.plan import TrtLlmOptions, served
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.support.double.words import SamplingParams
    from trt_responses.dialects.templates.dialect import TemplateDialect
    from trt_responses.prepare.pipeline import Built
    from trt_responses.tokens.vocabulary import Vocabulary

STORED = {"torch_dtype": "bfloat16"}
ASKED = TrtLlmOptions(profile="latency", overrides={"max_batch_size": 4})
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"days": {"type": "integer"}},
        "required": ["days"],
        "additionalProperties": False,
    },
}
SCHEMA = WEATHER["parameters"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_hf(tmp_path_factory.mktemp("models") / "qwen3-tiny", STORED)


@pytest.fixture(scope="module")
def spoken(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> TemplateDialect:
    model = open_model(checkpoint)
    assert model.architecture is None
    told = tmp_path_factory.mktemp("told") / DIALECT
    told.write_text(json.dumps(model.language))
    return template_dialect(told, None)


class Model:
    """Says a few words, or what its guide asks for, and ends as the tokeniser does."""

    def __init__(self, spoken: TemplateDialect) -> None:
        self.end_id = spoken.places.stops[0]
        self._encode = spoken.tokeniser.encode

    def __call__(self, prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        guide = params.guided_decoding
        if guide is None:
            return Script(((*self._encode("</think>\n\nHello."), self.end_id),))
        if CANARY.guide is not None and guide.json == CANARY.guide.source:
            return Script(((self.end_id,),))
        return Script(((*self._encode('{"days":3}'), self.end_id),))


def lab_of(spoken: TemplateDialect, vocabulary: Vocabulary, **changes: Any) -> Lab:
    lab = Lab(vocabulary, changes.get("hardware", GPU_HOST), Model(spoken))
    lab.tools = replace(lab.tools, dialect_for=dialect_facts, prompts_for=prompts_of)
    return lab


@pytest.fixture(scope="module")
def lab(spoken: TemplateDialect, vocabulary: Vocabulary) -> Lab:
    return lab_of(spoken, vocabulary)


@pytest.fixture(scope="module")
def built(lab: Lab, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return lab.prepare(checkpoint, tmp_path_factory.mktemp("engines"), "qwen3", ASKED)


def test_it_is_verified_by_two_starts_and_its_card_names_the_dialect(
    built: Built, lab: Lab, spoken: TemplateDialect
) -> None:
    card, end_id = built.card, spoken.places.stops[0]
    assert (card.kind, card.status, card.weight_type) == ("trtllm", "verified", "bf16")
    assert card == read_card(built.directory)
    assert card.architecture is None
    assert card.dialect is not None
    assert (card.dialect.family, card.dialect.stop_ids) == ("qwen3", spoken.places.stops)
    assert {file.name for file in card.files} == {"llm_args.yaml", "checkpoint.json", DIALECT}
    assert card.greedy_ids[-1] == end_id
    assert any("only gpt-oss has been run on TensorRT-LLM" in note for note in built.notes)
    report = json.loads((built.directory / "warmup_report.json").read_text())
    assert [batch["size"] for batch in report["cold"]["batches"]] == [1, 2, 4]
    assert [answer["ends_with"] for answer in report["cold"]["answers"]] == ["<|im_end|>"]
    # Nothing of Harmony's ids has reached the model.
    assert lab.double.misuse == []
    assert len(lab.double.requests) > 2 * (1 + 2 + 4)
    for request in lab.double.requests:
        params = request.sampling_params
        assert params.end_id == end_id
        mentioned = [*request.prompt_token_ids, *(params.stop_token_ids or ())]
        assert max([*mentioned, *(params.bad_token_ids or ())]) < ROWS
    prompts = [tuple(request.prompt_token_ids) for request in lab.double.requests]
    assert len(set(prompts)) >= 1 + 2 + 4


def test_nothing_of_gpt_oss_stands_in_its_arguments(built: Built) -> None:
    arguments = read_arguments(built.directory / "llm_args.yaml")
    assert arguments["max_seq_len"] == CONFIG["max_position_embeddings"]
    assert arguments["guided_decoding_backend"] == "llguidance"
    cache = arguments["kv_cache_config"]
    assert isinstance(cache, dict)
    assert cache["dtype"] == "auto"
    assert not arguments.keys() & {"moe_config", "moe_expert_parallel_size"}


def test_what_is_served_has_the_end_of_a_guide_and_its_own_dialect(
    built: Built, checkpoint: Path, spoken: TemplateDialect, tmp_path: Path
) -> None:
    given = served(built.directory, built.card)
    assert (given.checkpoint, given.end_id) == (checkpoint.resolve(), spoken.places.stops[0])
    assert dialect_of(built.directory, built.card).vocabulary == spoken.vocabulary
    machine = ServingMachine("little", 0, built.card.libraries, gpu_facts(GPU_HOST.gpus))
    assert compare(built.card, built.directory, machine) is None
    (check,) = dialect_checks(built.directory.parents[1], dialect_facts)
    assert (check.state, check.found) == ("ok", "qwen3: matches its card")
    told = (built.directory / DIALECT).read_text()
    try:
        (built.directory / DIALECT).write_text("{}")
        assert DIALECT in (compare(built.card, built.directory, machine) or "")
    finally:
        (built.directory / DIALECT).write_text(told)
    place = tmp_path / built.card.version
    place.mkdir()
    (place / "checkpoint.json").write_text(json.dumps({"path": str(checkpoint)}))
    with pytest.raises(PrepareError, match="is damaged; prepare the engine again"):
        served(place, built.card)


def test_without_a_gpu_it_is_planned(
    checkpoint: Path, spoken: TemplateDialect, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    built = lab_of(spoken, vocabulary, hardware=LAPTOP).prepare(
        checkpoint, tmp_path, "qwen3", replace(ASKED, family="qwen3-xml")
    )
    assert built.card.status == "planned"
    assert built.card.dialect is not None
    assert built.card.dialect.family == "qwen3-xml", "the operator's word is first"


# --- refused ------------------------------------------------------------------------------------


def _config(**changed: object) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps(CONFIG | STORED | changed))

    return write


def _end(eos: object) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))

    return write


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (_config(architectures=["PhiMoEForCausalLM"]), "found \\['PhiMoEForCausalLM'\\], expected"),
        (_config(architectures="Qwen3ForCausalLM"), "architectures"),
        (_config(architectures=[{}]), "architectures"),
        (_config(quantization_config={"quant_method": "fp8"}), "quantization_config"),
        (_config(torch_dtype="float32"), "torch_dtype: found 'float32'"),
        (_config(torch_dtype=["x"]), "torch_dtype"),
        (_config(vocab_size=1 << 23), "vocab_size"),
        (_config(num_attention_heads=0), "num_attention_heads"),
        (_config(max_position_embeddings="many"), "max_position_embeddings"),
        (_end(None), "eos_token"),
        (_end("<|unknown|>"), "eos_token"),
        (lambda d: (d / "tokenizer_config.json").unlink(), "tokenizer_config.json"),
        (lambda d: (d / "chat_template.jinja").unlink(), "no chat template"),
        (lambda d: (d / "model.safetensors").rename(d / "model.bin"), "pickle"),
        (lambda d: (d / "model.safetensors").write_bytes(b"short"), "model.safetensors"),
    ],
)
def test_another_model_or_a_damaged_one_is_refused_in_a_sentence(
    tmp_path: Path, damage: Callable[[Path], Any], word: str
) -> None:
    directory = write_tiny_hf(tmp_path / "m", STORED)
    damage(directory)
    with pytest.raises(PrepareError, match=word) as refused:
        open_model(directory)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (TrtLlmOptions(context_tokens=1 << 20), "context"),
        (TrtLlmOptions(gpus=3), "2 heads cannot be split among 3 GPUs"),
        (TrtLlmOptions(overrides={"pipeline_parallel_size": 2}), "pipeline stages"),
    ],
)
def test_what_is_asked_of_it_and_cannot_be_is_refused(
    checkpoint: Path,
    spoken: TemplateDialect,
    vocabulary: Vocabulary,
    tmp_path: Path,
    options: TrtLlmOptions,
    word: str,
) -> None:
    with pytest.raises(PrepareError, match=word):
        lab_of(spoken, vocabulary).prepare(checkpoint, tmp_path, "qwen3", options)
    draft = TrtLlmOptions(profile="latency", gpu_class="blackwell", draft=tmp_path)
    with pytest.raises(PrepareError, match="gpt-oss-120b"):
        lab_of(spoken, vocabulary).prepare(checkpoint, tmp_path, "qwen3", draft)


# --- served -------------------------------------------------------------------------------------


async def answered(
    built: Built, lab: Lab, spoken: TemplateDialect, *bodies: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """The whole server over the stand-in."""
    given = served(built.directory, built.card)
    engine = TrtLlmEngine(
        *given[:2],
        end_id=given.end_id,
        package=lab.double.package,
        find_ignored=nothing_ignored,
        environment={},
    )
    app = create_app(Settings(**SETTINGS), engine=engine, speaks=spoken)
    async with living(app):
        client = Client(app)
        for body in bodies:
            yield (await client.create(**body)).json()


@story
async def test_it_answers_calls_a_tool_and_follows_a_schema(
    built: Built, lab: Lab, spoken: TemplateDialect
) -> None:
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    forced = {"tools": [WEATHER], "tool_choice": "required", "reasoning": {"effort": "none"}}
    bodies: tuple[dict[str, Any], ...] = (
        {},
        forced,
        {"text": {"format": form}, "reasoning": {"effort": "none"}},
    )
    free, call, guided = [told async for told in answered(built, lab, spoken, *bodies)]
    assert [told["status"] for told in (free, call, guided)] == ["completed"] * 3
    assert free["output"][-1]["content"][0]["text"] == "Hello."
    item = call["output"][-1]
    assert (item["type"], item["name"], item["arguments"]) == (
        *("function_call", "get_weather", '{"days":3}'),
    )
    assert guided["output"][-1]["content"][0]["text"] == '{"days":3}'
    assert lab.double.misuse == []
    last = lab.double.requests[-1].sampling_params
    assert spoken.places.call_open[0] in (last.bad_token_ids or ()), "no mark is text in a guide"
    assert last.end_id not in (last.bad_token_ids or ())
