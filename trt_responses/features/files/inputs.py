"""Uploaded files in a request's messages: code that runs here gets them in its container, and the
model reads their names there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from trt_responses.accept.accepted import Accepted, BuiltInTool
from trt_responses.errors import InvalidRequest
from trt_responses.feature import Step
from trt_responses.run.draft import Draft
from trt_responses.tools.containers import Uploads, name_beside
from trt_responses.wire.items import InputMessage, ItemPlace, MediaPart, SentItem, TextPart

COPIED = "[The file {!r} is in the working directory of the tool {}.]"


class InputFiles:
    """`kinds` are the tools whose containers take files."""

    reads = ("built_in",)

    def __init__(self, uploads: Uploads, kinds: frozenset[str]) -> None:
        self.uploads = uploads
        self._kinds = kinds

    def accept(self, accepted: Accepted) -> Step | None:
        tool = next((one for one in accepted.built_in if one.kind in self._kinds), None)
        if tool is None or isinstance(accepted.input, str):
            return None
        found = [n for n, item in enumerate(accepted.input) if any(map(file_id, _parts(item)))]
        return _CopiesFiles(self, tool, found) if found else None


class _CopiesFiles(Step):
    order = 5

    def __init__(self, files: InputFiles, tool: BuiltInTool, places: list[int]) -> None:
        self._files = files
        self._tool = tool
        self._places = places

    async def offer(self, draft: Draft) -> None:
        accepted, names = draft.accepted, dict[str, str]()
        items: list[SentItem] = [item for item in accepted.input if not isinstance(item, str)]
        for number in self._places:
            place = accepted.places[number] if accepted.places else ItemPlace(f"input[{number}]")
            items[number] = await self._read(items[number], place, draft.owner, names)
        container = self._tool.options.get("container") or self._tool.options.get("environment")
        given = container.get("file_ids") or () if isinstance(container, dict) else ()
        options = {**self._tool.options, "file_ids": [*dict.fromkeys((*names, *given))]}
        built_in = [
            replace(one, options=options) if one is self._tool else one for one in accepted.built_in
        ]
        draft.accepted = replace(accepted, input=items, built_in=built_in)

    async def _read(
        self, item: SentItem, place: ItemPlace, owner: str, names: dict[str, str]
    ) -> SentItem:
        assert isinstance(item, InputMessage), "only a message has such parts"
        parts = [*_parts(item)]
        for number, part in enumerate(parts):
            if (name := file_id(part)) is None:
                continue
            try:
                upload = await asyncio.to_thread(self._files.uploads.upload, owner, name)
            except InvalidRequest as error:
                error.param = f"{place.part(number, 'content')}.file_id"
                raise
            if name not in names:
                names[name] = name_beside(names.values(), upload.name, name)
            text = COPIED.format(names[name], self._tool.kind)
            parts[number] = TextPart(type="input_text", text=text)
        return item.model_copy(update={"content": parts})


def _parts(item: SentItem) -> list[object]:
    content = item.content if isinstance(item, InputMessage) else ""
    return [] if isinstance(content, str) else list(content)


def file_id(part: object) -> str | None:
    """The id of the uploaded file that a part of a message is."""
    if not isinstance(part, MediaPart) or part.type not in ("input_file", "input_image"):
        return None
    name = (part.model_extra or {}).get("file_id")
    return name if isinstance(name, str) else None
