"""The seam of features: what a folder does with runs, so that the core knows nothing of it.

A feature sees each request once, and gives a step where the request wants it. Three rules
bind every one:

1. `accept` reads the request and holds nothing. A step takes hold of what it needs in `acquire` or
   later, and hands the way to let go of it to the draft, which does so however the run ends.
2. A step defines the joints that it needs and no others: one that no step has costs nothing.
3. No step knows another one. What two of them need stands in the draft or in the run's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, ne
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trt_responses.accept.accepted import DEFAULTS, FEATURES
from trt_responses.errors import unsupported_value

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.commit import Write
    from trt_responses.run.draft import Draft
    from trt_responses.run.ending import End
    from trt_responses.run.generation import Generation
    from trt_responses.run.run import Run
    from trt_responses.run.turns import Turn
    from trt_responses.store import Block
    from trt_responses.wire.response import Response


class Step:
    """What one feature does with one run. The joints stand in the order in which they are called;
    of several steps, the one with the lower `order` comes first."""

    order: ClassVar[int] = 50
    joints: ClassVar[frozenset[str]] = frozenset()
    """The names of the joints that the class defines."""
    moves: bool = True
    """Whether another server can go on with the run from its ids."""

    def __init_subclass__(cls) -> None:
        cls.joints = frozenset(name for name in JOINTS if getattr(cls, name) is not _BARE[name])

    async def acquire(self, draft: Draft) -> None:
        """Before anything is read: locks, and what another server has left of the run."""

    async def offer(self, draft: Draft) -> None:
        """Before the prompt is made, also where its tokens are only counted: the history, and the
        tools in the prompt."""

    async def prompted(self, draft: Draft) -> None:
        """The prompt is made, and nothing is planned."""

    async def planned(self, draft: Draft) -> None:
        """The last joint that may refuse the request."""

    def write(self, draft: Draft) -> None:
        """The log is made: the engine, its options, and the form of the response."""

    async def before(self, generation: Generation) -> Turn | End | None:
        """Before the first turn; a `Turn` takes its place, an `End` leaves no answer."""

    async def after(self, generation: Generation) -> Turn | None:
        """Behind a turn that was completed. The first step that gives another one has it."""

    async def conclude(self, last: Response, run: Run) -> Response:
        """Add to the last snapshot what only the end of a run can say."""
        return last

    def blocks(self, own: list[Block], last: Response) -> None:
        """Change what later requests go on from."""

    async def commit(self, write: Write, draft: Draft, last: Response) -> None:
        """Add to what is stored, in one transaction."""

    async def store(self, write: Write, draft: Draft, last: Response) -> None:
        """Store it in place of the core, if anything is to be stored; the first step that has this
        joint does."""

    async def committed(self, write: Write, draft: Draft) -> None:
        """It is stored, or nothing was to be."""

    async def outlive(self, lease_s: float) -> None:
        """Keep what is held for so long after this server has died: another may go on."""


JOINTS = (
    *("acquire", "offer", "prompted", "planned", "write", "before", "after"),
    *("conclude", "blocks", "commit", "store", "committed", "outlive"),
)
_BARE = {name: getattr(Step, name) for name in JOINTS}
NO_JOINTS: Joints = dict.fromkeys(JOINTS, ())


Joints = Mapping[str, Sequence[Callable[..., Any]]]


class Feature(Protocol):
    """What a folder brings to each request."""

    @property
    def reads(self) -> Sequence[str]:
        """The fields of an accepted request that it goes by: while each has its default, the
        feature is skipped."""
        ...

    def accept(self, accepted: Accepted) -> Step | None:
        """The feature's step for a request; None where it has nothing to do. Raises what the
        request is refused with."""
        ...


class Features:
    """The features of a server, with what each reads in a row: a plain request, for which hardly
    any has a step, passes them all within two calls."""

    def __init__(self, features: Sequence[Feature]) -> None:
        reads = [(feature, name) for feature in features for name in feature.reads]
        self._readers = [feature for feature, _ in reads]
        names = [name for _, name in reads]
        self._values = attrgetter(*names, "store", "echo")  # with two names or more, a tuple
        self._defaults = tuple(DEFAULTS[name] for name in names)

    def steps(self, accepted: Accepted, own: Sequence[Step] = ()) -> tuple[Step, ...]:
        """The steps for a request, its starter's `own` among them, in their order."""
        values = self._values(accepted)[:-2]
        found, last = [*own], None
        if values != self._defaults:
            for feature in compress(self._readers, map(ne, values, self._defaults)):
                if feature is not last and (step := feature.accept(accepted)) is not None:
                    found.append(step)
                last = feature
        if len(found) > 1:
            found.sort(key=lambda step: step.order)
        return tuple(found)


def not_installed(features: Sequence[Feature]) -> tuple[str, ...]:
    """The fields of an accepted request that none of these features goes by, and the core neither:
    usually none."""
    read = {name for feature in features for name in feature.reads}
    return tuple(name for name in FEATURES if name not in read)


def refuse_fields(fields: Sequence[str], accepted: Accepted) -> None:
    """Refuse a request that sets one of these fields to other than its default."""
    for name in fields:
        if getattr(accepted, name) != DEFAULTS[name]:
            field, what = FEATURES[name]
            raise unsupported_value(field, f"{what} are not installed here")


def joints_of(steps: Sequence[Step]) -> Joints:
    """The methods of some steps for each joint, in their order."""
    if not steps:
        return NO_JOINTS
    return {name: [getattr(step, name) for step in steps if name in step.joints] for name in JOINTS}
