"""The parts that every run is made of, put together once by the app, and the seam of leases: which
engine makes a run, where a server has several.

Names only: what is done with them is the business of `assembly.py` and of the prompt.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from trt_responses.accept.model_names import ModelNames
    from trt_responses.dialect import Dialect, Renderer
    from trt_responses.engine import Engine
    from trt_responses.feature import Feature
    from trt_responses.language.steering import Segment
    from trt_responses.log.machine import Mint
    from trt_responses.prompt.carrier import Carrier
    from trt_responses.run.admission import Admission
    from trt_responses.run.ending import End
    from trt_responses.run.facts import Listener
    from trt_responses.run.generation import Chance, Generation, Recorder
    from trt_responses.run.request import RunRequest
    from trt_responses.run.turns import Turns
    from trt_responses.steering.steering import Steering
    from trt_responses.store import Block, Record, Store
    from trt_responses.tool import Tool

    NewChance = Callable[[Collection[str], Collection[str], Turns], Chance]
    """Made of the recipients of calls of functions, and of the names of the server's tools."""
    Overflow = Callable[[Sequence[Block], Sequence[bool], int], frozenset[int]]
    Translation = Callable[[Record, "Parts"], Awaitable[Record]]

ID_LETTERS = 22
RANDOM_BYTES = 1536
"""What is read at once, for about ninety ids: each read is a system call."""


class Ids:
    """Makes ids that cannot be guessed."""

    def __init__(self) -> None:
        self._letters: list[str] = []  # those of the next ids
        os.register_at_fork(after_in_child=self._letters.clear)

    def mint(self, prefix: str) -> str:
        """A fresh id in the API's form: 22 letters and digits, which are 131 bits."""
        while True:
            try:  # a thread may take the last one
                return f"{prefix}_{self._letters.pop()}"
            except IndexError:
                fresh = b2a_base64(os.urandom(RANDOM_BYTES), newline=False).translate(None, b"+/")
                ends = range(ID_LETTERS, len(fresh) + 1, ID_LETTERS)
                self._letters += [fresh[end - ID_LETTERS : end].decode() for end in ends]


mint = Ids().mint


NUMBER_CHARS = 4
"""The digits of an item's id that give its number within the response, in hexadecimal."""


def item_id(prefix: str, response_id: str, number: int) -> str:
    """The id of an item. It says which response the item is of, so that a reference finds it
    without an index."""
    return f"{prefix}_{response_id.partition('_')[2]}{number:0{NUMBER_CHARS}x}"


@dataclass(frozen=True, slots=True)
class Parts:
    """What every run is made of."""

    engine: Engine
    store: Store
    dialect: Dialect
    steering: Steering
    model: str
    identity: str
    knowledge_cutoff: str
    admission: Admission
    mint: Mint
    today: Callable[[], str]
    clock_s: Callable[[], float]
    clock_ns: Callable[[], int]
    listeners: Sequence[Listener] = ()
    recorder: Recorder | None = None
    """Notes each run, for listeners."""
    recovery: Recovery | None = None
    """Lets runs go on when the engine is back; None: a run fails when its engine goes away."""
    max_calls: int = 1
    """The most calls in one turn, for requests that do not ask for one alone."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """The tools that the operator has switched on, by kind."""
    features: Sequence[Feature] = ()
    own_fields: Collection[str] = ()
    """Paths of the request fields that features read out of those that the core ignores."""
    leases: Leases | None = None
    """Gives each run an engine of its own; None: all runs have this one."""
    carrier: Carrier | None = None
    """Makes blocks of items that stand for others."""
    names: ModelNames | None = None
    """The names by which clients ask; None: whatever they say is the one model."""
    second_chance: NewChance | None = None
    """Gives a response one more turn that has nothing for its client."""
    overflow: Overflow | None = None
    """Chooses the places of blocks that leave a prompt, by those selected and the room for them."""
    translation: Translation | None = None
    """Renders a conversation that a model of another vocabulary has written."""
    note_media: bool = False
    """Whether a line stands for what a text model cannot read; else it is refused."""

    @property
    def renderer(self) -> Renderer:
        """The dialect's renderer."""
        return self.dialect.renderer


class Recovery(Protocol):
    """Lets runs over one engine go on when that went away and is back."""

    @property
    def paused(self) -> int:
        """The number of runs that wait for the engine now."""
        ...

    def over(self, engine: Engine) -> Recovery:
        """The recovery of one version of the engine, whose runs are counted here too."""
        ...

    async def resume(self, generation: Generation, segment: Segment, end: End) -> End:
        """Generate the rest of a segment whose engine went away, with this end."""
        ...


class Lease(Protocol):
    """One run's hold on an engine."""

    @property
    def parts(self) -> Parts:
        """The parts of every run on that engine."""
        ...

    def headers(self) -> Mapping[str, str]:
        """HTTP headers that say which engine it is."""
        ...

    def release(self) -> None:
        """Give it back. Called once."""
        ...


class Leases(Protocol):
    """Gives each run an engine."""

    def lease(self, request: RunRequest, model: str, parts: Parts) -> Lease:
        """For a request of a model, by its name without an adapter's. `parts` are those of the
        server."""
        ...
