"""An engine without a model: it plays what a script says, id by id.

It reads the prompt as a model does, and so goes on from any place: behind forced ids, under a
guide, after a tool's result, and after it has died.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from trt_responses.engine import Chunk, GenerateOptions, GuideKind, Health, Limits, Logprob, Sink
from trt_responses.engines.admission import room
from trt_responses.errors import EngineUnavailable, InvalidRequest
from trt_responses.features.script.faults import with_faults
from trt_responses.features.script.playing import Player
from trt_responses.features.script.rules import Request, Rule, Script
from trt_responses.features.script.scene import Scene, scene_of
from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.vocabulary import Vocabulary

CONTEXT_TOKENS = 131_072
PLACES = 1024
GUIDES: Mapping[GuideKind, frozenset[int]] = dict.fromkeys(
    ("json_schema", "regex"), frozenset({CONTROL.return_})
)
SCRIPT: ContextVar[Script] = ContextVar("script")
"""Played in place of the server's, for a request in whose context it is set."""
BACK_S = 0.2
"""Seconds after which an engine that died is back."""


class ScriptEngine:
    """Plays a script. `of` gives the engine of one run, which knows the run's request."""

    model = "script"
    dialect = None

    def __init__(self, script: Script, vocabulary: Vocabulary) -> None:
        self._script = script
        self.vocabulary = vocabulary
        self._down: str | None = "The engine has not been started."
        self._playing: set[Playing] = set()
        self._restarts = 0

    @property
    def script(self) -> Script:
        """The script of the request that is at work."""
        return SCRIPT.get(self._script)

    async def start(self) -> None:
        self._down = None

    async def stop(self, deadline_s: float) -> None:
        self._go("The engine has been stopped.")

    def health(self) -> Health:
        now_ns = time.monotonic_ns()
        return Health(True, self._down is None, now_ns, self._down, restarts=self._restarts)

    def limits(self) -> Limits:
        return Limits(CONTEXT_TOKENS, PLACES, GUIDES, max_logprobs=20)

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Playing:
        return self.of(Request()).generate(prompt_ids, options, sink)

    def of(self, request: Request) -> RunEngine:
        return RunEngine(self, request)

    def play(self, ids: list[int], run: RunEngine, rule: Rule, job: Job) -> Playing:
        if self._down is not None:
            raise EngineUnavailable(self._down)
        playing = Playing(ids, run, rule, job)
        self._playing.add(playing)
        playing.task.add_done_callback(lambda _: self._playing.discard(playing))
        return playing

    def die(self) -> None:
        """Lose all that is playing, and be back soon."""
        self._restarts += 1
        self._go("The engine has died, as its script says.", died=True)
        asyncio.get_running_loop().call_later(BACK_S, self._back)

    def _go(self, why: str, *, died: bool = False) -> None:
        self._down = why
        for playing in list(self._playing):
            playing.end(Chunk(finish="error", error=why, lost="died" if died else None))

    def _back(self) -> None:
        self._down = None


class RunEngine:
    """The engine of one run. Each turn, which begins behind another's message, has one rule."""

    def __init__(self, engine: ScriptEngine, request: Request) -> None:
        self._engine = engine
        self._script = engine.script
        self._request = request
        self._rules: dict[int, Rule] = {}
        self.may_die = True

    async def start(self) -> None:
        """The engine has been started."""

    async def stop(self, deadline_s: float) -> None:
        """The engine is stopped with its server."""

    def health(self) -> Health:
        return self._engine.health()

    def limits(self) -> Limits:
        return self._engine.limits()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Playing:
        scene = scene_of(prompt_ids, self._engine.vocabulary)
        rule = self.rule_for(scene)
        seed = self._script.seed + self._request.number
        player = Player(rule, self._request, seed, self._engine.vocabulary)
        job = Job(options, sink, room(len(prompt_ids), options, self.limits()))
        return self._engine.play(player.ids(scene, options), self, rule, job)

    def rule_for(self, scene: Scene, header: str = "") -> Rule:
        """The rule of a turn, with the faults of a header. Raises an `InvalidRequest` when
        none holds."""
        if (rule := self._rules.get(scene.before)) is not None:
            return rule
        rule = self._script.rule_for(scene, self._request)
        if rule is None:
            raise InvalidRequest(
                f"No rule of the script holds for '{scene.question:.100}'.", code="no_rule_holds"
            )
        rule = self._rules[scene.before] = with_faults(rule, header)
        return rule

    def scene(self, prompt_ids: Sequence[int]) -> Scene:
        return scene_of(prompt_ids, self._engine.vocabulary)

    def die(self) -> None:
        self.may_die = False
        self._engine.die()


class Job(NamedTuple):
    """What an engine's request wants, and its receiver."""

    options: GenerateOptions
    sink: Sink
    room: int


class Playing:
    """One engine's request while it is played; its handle too."""

    def __init__(self, ids: list[int], run: RunEngine, rule: Rule, job: Job) -> None:
        self._ids = ids
        self._run = run
        self._rule = rule
        self._job = job
        self._over = False
        self.task = asyncio.create_task(self._play())

    def abort(self) -> None:
        self._over = True
        self.task.cancel()

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless it was."""
        if not self._over:
            self._over = True
            self._job.sink.push(chunk)
            self.task.cancel()

    async def _play(self) -> None:
        rule, most = self._rule, self._job.room
        await asyncio.sleep(rule.wait_s)
        most = min(most, rule.stop_after or most)
        ids = self._ids if rule.fail is None else self._ids[:-1]  # the last one ends a message
        for number, token_id in enumerate(ids):
            await asyncio.sleep(rule.pace_s)
            if rule.die_after == number and self._run.may_die:
                self._run.die()
                return
            if self._push(token_id, last=number + 1 >= most):
                return
        if rule.fail is not None:
            self.end(Chunk(finish="error", error=rule.fail))
        else:
            self.end(Chunk(finish="stop"))

    def _push(self, token_id: int, *, last: bool) -> bool:
        """Push one id. Returns whether it was the last."""
        options = self._job.options
        scored: tuple[Logprob, ...] = ()
        if options.logprobs is not None:
            top = ((token_id, 0.0),)[: options.logprobs]
            scored = (Logprob(token_id, 0.0, top),)
        if token_id in options.stop_ids:
            self.end(Chunk((token_id,), scored, finish="stop", stop_id=token_id))
        elif last:
            self.end(Chunk((token_id,), scored, finish="length"))
        else:
            self._job.sink.push(Chunk((token_id,), scored))
            return False
        return True
