"""The reference server of OpenAI's package `gpt-oss`, whose engine is a function.

`python -m responses_conformance.mocks.gpt_oss JSON PORT`. A function cannot end by length: where a
transcript does, it goes on with `<|return|>`.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from responses_conformance.mocks.play import RETURN, Player

if TYPE_CHECKING:
    from collections.abc import Callable


def next_token(player: Player) -> Callable[..., int]:
    """The engine's function: the next id behind a prompt."""
    left: list[int] = []

    def following(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
        if new_request:
            left[:] = player.play(tokens, None).ids
        return left.pop(0) if left else RETURN

    return following


def main(given: dict[str, Any], port: int) -> None:
    import uvicorn
    from gpt_oss.responses_api.api_server import create_api_server
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    player = Player.of(given.get("script", ""), given.get("record", ""))
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    app = create_api_server(next_token(player), encoding)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
