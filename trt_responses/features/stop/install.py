"""Stop sequences: an answer up to the first of some texts, which may come in pieces of any size.

Text is held back exactly as long as it may be the beginning of a stop. Knows no item and no token.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server
from trt_responses.tokens.pieces import escaped
from trt_responses.wire.output import Phase


class StopText:
    """Stops one answer at the first of some texts. Once a stop was `found`, no more text is
    sent."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.found: str | None = None
        self._stops = stops
        self._longest = max(map(len, stops))
        self._waiting = ""

    def feed(self, pieces: Sequence[bytes]) -> list[bytes]:
        """The text that can be sent now. Pieces are bodies of JSON strings, here and there."""
        if self.found is not None:
            return []
        text = self._waiting + "".join(orjson.loads(b'"%b"' % piece) for piece in pieces)
        # The stop that ends first, as it is found when the text comes letter by letter.
        found = min(
            ((at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0),
            default=None,
        )
        if found is not None:
            _, at, self.found = found
            self._waiting = ""
            return _pieces(text[:at])
        end = len(text) - self._begun(text)
        self._waiting = text[end:]
        return _pieces(text[:end])

    def finish(self, *, whole: bool) -> list[bytes]:
        """The text that was held back, which was no stop, since the text has ended."""
        waiting, self._waiting = self._waiting, ""
        return _pieces(waiting)

    def _begun(self, text: str) -> int:
        """The length of the longest end of the text with which a stop may begin."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0


def _pieces(text: str) -> list[bytes]:
    return [escaped(text)] if text else []


def install(server: Server) -> None:
    server.features.append(Stop())


class Stop:
    """Ends an answer at the client's texts."""

    reads = ("stop",)

    def accept(self, accepted: Accepted) -> Step | None:
        return StopStep(accepted.stop) if accepted.stop else None


class StopStep(Step):
    """Ends the answers of one run at some texts."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops

    def write(self, draft: Draft) -> None:
        if not draft.accepted.compacts:
            draft.machine_options.setdefault("answer_text", self._text)

    def _text(self, phase: Phase) -> StopText | None:
        return StopText(self._stops) if phase == "final_answer" else None
