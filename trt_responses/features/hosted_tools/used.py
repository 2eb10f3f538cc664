"""The tools that a response may call, found when one is called: a server may offer thousands, and
nothing is made for each of them.

Knows the seam of tools; knows no run and no concrete tool.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, Protocol

from trt_responses.features.hosted_tools.hosted_calls import Runner
from trt_responses.language.messages import FUNCTIONS
from trt_responses.log.machine import NewCall
from trt_responses.tool import Function, Session, Tool

NO_CALLS: Mapping[str, NewCall] = {}


class RunsCalls(Protocol):
    """What a tool loop reads of a `Tool`."""

    @property
    def name(self) -> str: ...

    @property
    def deadline_s(self) -> float: ...


class UsedTool(NamedTuple):
    """A tool of the request, its session in this response, and the form of its calls."""

    tool: RunsCalls
    session: Session
    runner: Runner
    name: str
    """The session's own name for the recipient; the model may write another."""
    shown_as: str
    """The tool's name in the prompt."""


class Opened(NamedTuple):
    """A session, and how the client sees its calls."""

    tool: Tool
    session: Session
    shows_outputs: bool
    shows_text: bool
    functions: Collection[str]
    """The recipients of the client's own functions."""


class UsedTools(Mapping[str, UsedTool]):
    """The tools of opened sessions by the recipients of their calls. The model may call each by its
    name, also with or without the namespace of functions, where no function has that name."""

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self._as_functions: dict[str, tuple[str, Function]] = {}
        self._hidden: set[str] = set()

    def show_as_functions(self, functions: Mapping[str, Function]) -> None:
        """Have the recipients of these calls be functions, for a model that has no namespaces."""
        for name, function in functions.items():
            self._as_functions[FUNCTIONS + function_of(name)] = name, function
        self._hidden |= functions.keys()

    def __getitem__(self, recipient: str) -> UsedTool:
        if recipient in self._as_functions:
            name, function = self._as_functions[recipient]
            opened = self._holding(name)
            runner = _runner(opened, name)._replace(unwraps=function.text)
            return UsedTool(opened.tool, opened.session, runner, name, function_of(name))
        name, opened = self._found(recipient)
        return UsedTool(opened.tool, opened.session, _runner(opened, name), name, name)

    def __iter__(self) -> Iterator[str]:
        """Each tool once, by its own name."""
        opened = dict.fromkeys(chain.from_iterable(one.session.recipients for one in self.opened))
        yield from (name for name in opened if name not in self._hidden)
        yield from (one for one, (name, _) in self._as_functions.items() if name in opened)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self) -> Collection[str]:
        """The tools by their names in the prompt."""
        if self._hidden:
            return [used.shown_as for used in self.values()]
        return Both(*(one.session.recipients for one in self.opened))

    def _found(self, recipient: str) -> tuple[str, Opened]:
        if recipient not in self._hidden:
            with suppress(KeyError):
                return recipient, self._holding(recipient)
        bare = recipient.removeprefix(FUNCTIONS)
        name = FUNCTIONS + bare if bare == recipient else bare
        for opened in self.opened:
            known = name in opened.session.recipients and name not in self._hidden
            if known and recipient not in opened.functions:
                return name, opened
        raise KeyError(recipient)

    def _holding(self, name: str) -> Opened:
        for opened in reversed(self.opened):
            if name in opened.session.recipients:
                return opened
        raise KeyError(name)


def function_of(recipient: str) -> str:
    """A recipient's name as a function's."""
    return recipient.replace(".", "_")


def _runner(opened: Opened, name: str) -> Runner:
    recipient = opened.session.recipients[name]
    runner = Runner(recipient.kind, recipient.facts, opened.shows_outputs, recipient.describe)
    return runner._replace(shows_text=opened.shows_text)


class Both(Collection[str]):
    """Names of several collections, none of which is copied."""

    def __init__(self, *parts: Collection[str]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        return name is not None and any(name in part for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))


class NewCalls(Mapping[str, "NewCall"]):
    """What makes the client's view of each tool's calls."""

    def __init__(
        self,
        tools: Mapping[str, UsedTool],
        sign: Callable[[Sequence[str]], str] | None,
        others: Mapping[str, NewCall],
    ) -> None:
        """`sign` vouches for those that wait for the client's approval."""
        self._tools, self._sign, self._others = tools, sign, others

    def __getitem__(self, recipient: str) -> NewCall:
        used = self._tools.get(recipient)
        if used is None:
            return self._others[recipient]
        return used.runner._replace(sign=self._sign).call

    def __bool__(self) -> bool:
        return True  # without counting them

    def __iter__(self) -> Iterator[str]:
        return iter({**self._others, **dict.fromkeys(self._tools)})

    def __len__(self) -> int:
        return sum(1 for _ in self)
