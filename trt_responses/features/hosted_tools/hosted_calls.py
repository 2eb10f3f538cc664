"""Calls that the server runs itself, as the client sees them: a row for each kind.

The events of a call, in their order: `added`, the steps `begun`, deltas of its text, what `whole`
gives; then the tool runs; then the step of its end, if that status has one, and `done`. A kind
without deltas waits for the whole text before `added`, so that its item is true from the start.
The tool loop decides when a call is run, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from trt_responses.features.tool_items.custom_input import Unwrapper
from trt_responses.features.tool_items.events import HostedStep
from trt_responses.log.item_events import FolderCall
from trt_responses.log.machine import Mint
from trt_responses.wire import events as e
from trt_responses.wire import output as o

Item = Callable[["HostedCall", str, "Outcome"], o.OutputHostedCall]

NOTHING: Mapping[str, Any] = {}
NO_STEPS: Mapping[o.HostedStatus, str] = {}


class Runner(NamedTuple):
    """A tool that is run here, in the form in which the client sees its calls."""

    kind: str
    """The kind of call, which is a key of `ROWS`."""
    facts: Mapping[str, str] = NOTHING
    """The item's values before anything runs, by the item's own keys."""
    shows_outputs: bool = False
    """Whether the client has requested outputs that are null otherwise."""
    describe: Callable[[str], Mapping[str, Any]] | None = None
    """Makes the same of the text that the model wrote."""
    unwraps: str = ""
    """The member of the model's JSON that is the text of a call; empty: the JSON is."""
    shows_text: bool = False
    """Whether the client is to have all that the model reads."""
    sign: Callable[[Sequence[str]], str] | None = None
    """Vouches for what the client is to bring back: calls that wait for its approval."""

    def call(self, mint: Mint, index: int) -> HostedCall:
        """One more call."""
        return HostedCall(mint, index, self)


class Outcome(NamedTuple):
    """The outcome of a call."""

    status: o.HostedStatus = "in_progress"
    text: str | None = None
    """The text that the model was given; None where the call was broken off."""
    details: Mapping[str, Any] = NOTHING
    """More values of the item, by its own keys."""


class Row(NamedTuple):
    """What is particular to one kind of call."""

    kind: type[o.OutputHostedCall]
    """That of its items."""
    prefix: str
    """The beginning of its items' ids."""
    item: Item
    """Makes the item, from the text that the model wrote and from the outcome."""
    delta: Callable[[str, int, str], e.Delta] | None = None
    """Makes an event of a piece of text. None: the text is sent as a whole, before `added`."""
    begun: tuple[str, ...] = ()
    whole: Callable[[HostedCall, str], tuple[e.Event, ...]] = lambda *_: ()
    """Makes the events when the text is whole."""
    result: Callable[[HostedCall, str, int, Outcome], tuple[e.Event, ...]] | None = None
    """Makes the events of another item, with that id and index, for what the call gave."""
    runs: tuple[str, ...] = ()
    """The steps between the whole text and the tool's answer."""
    ends: Mapping[o.HostedStatus, str] = NO_STEPS
    empty: bytes = b""
    """The text of a call that was written without one."""
    signed: bool = False
    """Whether its id vouches for its content when a client brings it back."""
    if_cut: str = ""
    """The kind that a call becomes whose text was cut; None: it keeps its kind."""


class HostedCall(FolderCall):
    """A call of one of the rows. Its item ends when the tool has answered."""

    def __init__(self, mint: Mint, index: int, runner: Runner) -> None:
        self._mint = mint
        self.index = index
        self.text = ""
        """The text that the model wrote, of a row that waits for it."""
        self.described = NOTHING
        self._be(runner)

    def _be(self, runner: Runner) -> None:
        self.runner = runner
        self.row = ROWS[runner.kind]
        self.id = self._mint(self.row.prefix)
        self.empty = self.row.empty
        self.waits = self.row.delta is None
        self.run_here = self.row.kind.run_here

    def new_filter(self) -> Unwrapper | None:
        return Unwrapper(self.runner.unwraps) if self.runner.unwraps else None

    def begin(self) -> tuple[e.Event, ...]:
        return () if self.waits else self._begun("")

    def _begun(self, text: str) -> tuple[e.Event, ...]:
        """The first events. The text is whole already, where the row waits for it."""
        if self.runner.describe is not None:
            self.described = self.runner.describe(text)
        self.text = text
        added = e.OutputItemAdded(self.index, self.row.item(self, text, Outcome()))
        return (added, *self._steps(self.row.begun))

    def at_once(self, written: str, status: o.Status) -> tuple[e.Event, ...]:
        if status != "completed" and (kind := self.row.if_cut):
            self._be(self.runner._replace(kind=kind))
        if self.row.signed and self.runner.sign is not None:  # behind its id, for its content
            facts = self.runner.facts
            signed = (self.id, facts["server_label"], facts["name"], written)
            self.id = f"{self.id}.{self.runner.sign(signed)}"
        return (*self._begun(written), *self._ended(written, status))

    def delta(self) -> e.Delta:
        assert self.row.delta is not None, "a call that waits for its text has no deltas"
        return self.row.delta(self.id, self.index, "")

    @property
    def call_id(self) -> str:
        """The id of the call, of a kind that has one besides its item's."""
        return f"call_{self.id.partition('_')[2]}"

    def end(self, item: o.OutputItem, status: o.Status) -> tuple[e.Event, ...]:
        """The events at the end of the text; at that of the item too, where it was cut or nothing
        runs here."""
        return self._ended(self.text_of(item), status)

    def _ended(self, text: str, status: o.Status) -> tuple[e.Event, ...]:
        whole = self.row.whole(self, text)
        if status != "completed":
            return (*whole, self._done(text, Outcome("incomplete")))
        if not self.run_here:
            return (*whole, self._done(text, Outcome("completed")))
        return (*whole, *self._steps(self.row.runs))

    def answer(
        self, item: o.OutputItem, index: int, outcome: Outcome | None
    ) -> tuple[e.Event, ...]:
        """The events at the end of the item: the tool's answer, or that it was broken off."""
        outcome = outcome or Outcome("incomplete")
        step = self.row.ends.get(outcome.status)
        ended = self._steps((step,) if step else ())
        events = (*ended, self._done(self.text_of(item), outcome))
        if self.row.result is None or outcome.text is None:
            return events
        return (*events, *self.row.result(self, self._mint("sho"), index, outcome))

    def text_of(self, item: o.OutputItem) -> str:
        if self.waits:
            return self.text
        assert isinstance(item, o.OutputHostedCall)
        return item.text()

    def _done(self, text: str, outcome: Outcome) -> e.OutputItemDone:
        return e.OutputItemDone(self.index, self.row.item(self, text, outcome))

    def _steps(self, names: tuple[str, ...]) -> tuple[e.Event, ...]:
        return tuple(HostedStep(self.id, self.index, name) for name in names)


ROWS: dict[str, Row] = {}
"""The rows by the kind that a `Runner` names."""
