"""`python -m responses_conformance.transcripts.write FILE` fills in the ids of a file's lines."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from responses_conformance.transcripts import wish

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

Written = str | list[str | list[int] | dict[str, str]]


@cache
def encoding() -> HarmonyEncoding:
    """openai-harmony's, which needs `o200k_base.tiktoken`: in its cache, in the folder that
    TIKTOKEN_ENCODINGS_BASE names, or downloaded."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def ids_of(written: Written) -> list[int]:
    """The ids of what a model wrote."""
    ids: list[int] = []
    for part in [written] if isinstance(written, str) else written:
        if isinstance(part, str):
            ids += encoding().encode(part, allowed_special="all")
        elif isinstance(part, dict):
            ids += encoding().encode(part["plain"], disallowed_special=())
        else:
            ids += part
    return ids


def filled(number: int, line: dict[str, Any]) -> dict[str, Any]:
    """The line of that number with its ids."""
    return line | {"mark": ids_of(wish(number)), "ids": ids_of(line["written"])}


def main(path: str) -> None:
    lines = Path(path).read_text("utf-8").splitlines()
    made = (filled(number, json.loads(line)) for number, line in enumerate(lines, 1))
    texts = [json.dumps(each, ensure_ascii=False) for each in made]
    Path(path).write_text("\n".join(texts) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
