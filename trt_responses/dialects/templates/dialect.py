"""The dialect of a checkpoint with a chat template: renderer, reader and plans."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trt_responses.dialect import NO_TOOLS, Takes
from trt_responses.dialects.templates.checkpoint import stop_ids_of
from trt_responses.dialects.templates.families import to_dict
from trt_responses.dialects.templates.forms import fitted
from trt_responses.dialects.templates.probes import probe
from trt_responses.dialects.templates.read.reader import TemplateReader
from trt_responses.dialects.templates.steer import Places, TurnPlan
from trt_responses.dialects.templates.tables import Tables
from trt_responses.dialects.templates.write.render_process import TemplateProcess
from trt_responses.dialects.templates.write.renderer import Renderer
from trt_responses.dialects.templates.write.template import TemplateLimitError
from trt_responses.errors import StartupError
from trt_responses.language.reader import AS_USUAL, ReaderOptions
from trt_responses.language.steering import Unguided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trt_responses.dialects.templates.families import Family
    from trt_responses.dialects.templates.tokeniser import Tokeniser
    from trt_responses.dialects.templates.write.template import Template
    from trt_responses.language.messages import FunctionTool
    from trt_responses.language.steering import Guides, SteeringPlan, Turn
    from trt_responses.schema.compile import Form


SEVERAL = 8
"""Maximum calls in a turn of a model that writes several."""


class Words:
    """A checkpoint's lexicon: ids as bytes and as readable text."""

    def __init__(self, tokeniser: Tokeniser, token_bytes: tuple[bytes, ...]) -> None:
        self.token_bytes = token_bytes
        self._tokeniser = tokeniser

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control id, or outside the vocabulary."""
        return not (0 <= token_id < len(self.token_bytes) and self.token_bytes[token_id])

    def control_name(self, token_id: int) -> str:
        """The spelling of a control id, such as `<|im_end|>`."""
        return self._tokeniser.controls.get(token_id, f"<|no id {token_id}|>")

    def text(self, token_ids: list[int]) -> str:
        """Readable text of ids: bad UTF-8 replaced, control ids spelled out."""
        return self._tokeniser.text(token_ids)


class TemplateDialect:
    """The dialect of a model with a chat template, as far as its family is known."""

    def __init__(
        self, template: Template, tokeniser: Tokeniser, family: Family, stop_ids: Sequence[int]
    ) -> None:
        """`stop_ids`: ids that end a turn; the first is the one that the template writes."""
        self.name = family.name
        self.vocabulary = f"{family.name}-{tokeniser.digest}"
        self.places = Places(family, tokeniser, stop_ids)
        self.lexicon = Words(tokeniser, self.places.token_bytes)
        self.takes = Takes(
            tools=family.calls is not None and (family.shows_tools or family.describes_tools),
            thoughts=family.thought is not None,
            raw_calls=False,
            prompt_ids=False,
            namespaces=False,
            no_tools=family.no_calls or NO_TOOLS,
            calls=SEVERAL if family.calls is not None and family.calls.several else 1,
        )
        self.tokeniser = tokeniser
        self._template = template
        self._family = family
        self._tables = Tables.of(family, tokeniser, stop_ids)
        self._process = TemplateProcess(template)
        self.renderer = Renderer(self._process, tokeniser, family, stop_ids, self._reader_behind)

    async def close(self) -> None:
        """Stop the render process."""
        await self._process.close()

    def fitted(self) -> TemplateDialect:
        """The dialect as the template describes it, with this one's family as a hint. Must not be
        called inside an event loop."""
        with self._rendering() as render:
            family = fitted(self._family, render, self._template.source)
        stops = stop_ids_of(family, self.tokeniser, self.places.stops)
        return TemplateDialect(self._template, self.tokeniser, family, stops)

    def form(self) -> dict[str, Any]:
        """How the model writes, for a card."""
        return to_dict(self._family)

    def probed(self) -> dict[str, str | bool]:
        """The results of probing the template. Raises a `StartupError` if they contradict the
        family. Must not be called inside an event loop."""
        with self._rendering() as render:
            return asdict(probe(render, self._family))

    @contextmanager
    def _rendering(self) -> Iterator[Callable[..., str]]:
        """Renders within the limits of serving."""
        with asyncio.Runner() as runner:
            try:
                yield lambda *inputs, **switches: runner.run(
                    self._process.render(*inputs, **switches)
                )
            except TemplateLimitError as error:
                raise StartupError(str(error)) from None
            finally:
                runner.run(self.close())

    async def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The prompt for each user text, for the preparation of an engine."""
        try:
            return [list(await self.renderer.user_prompt(text)) for text in texts]
        finally:
            await self.close()

    def reader(self, options: ReaderOptions = AS_USUAL) -> TemplateReader:
        return TemplateReader(self._tables, options, begins=self._tables.begins(options.prompt))

    def plan(
        self, turn: Turn, guides: Guides, tokens: int, *, written: int = 0, after_tool: bool = False
    ) -> SteeringPlan:
        return TurnPlan(turn, self.places, guides, written + tokens)

    def arguments(self, of_json: Form, tool: FunctionTool) -> Form:
        forms, bare = self.places.forms, self.places.bare
        if self._family.calls is not None and bare and self._family.thought is not None:
            raise Unguided("nothing marks where a call begins behind a thought")
        return of_json if forms is None else forms.form(of_json, tool.parameters or {})

    def messages(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The ids split after each id that ends a turn."""
        parts: list[Sequence[int]] = []
        begin = 0
        for place, token_id in enumerate(ids, 1):
            if token_id in self.places.ends or place == len(ids):
                parts.append(ids[begin:place])
                begin = place
        return parts

    def _reader_behind(
        self, before: Sequence[int], tools: Sequence[FunctionTool]
    ) -> TemplateReader:
        return self.reader(ReaderOptions(call_ends=False, tools=tools, prompt=before))
