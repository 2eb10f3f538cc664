"""`trt-responses chat`: typed to in a terminal of tmux's, and piped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.asgi import until
from tests.support.browser import GUIDES
from tests.support.mcp_served import calling, python_and_demo
from tests.support.scripted.engine import Script, ScriptedEngine, Stall
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, script, vocabulary
from tests.support.serving import listening
from tests.support.tmux import Screen, needs_tmux, terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

COMMAND = (sys.executable, "-m", "trt_responses", "chat")
FINAL = "<|channel|>final<|message|>"


def waits(shown: str) -> bool:
    """The program waits for a line: what is typed before that goes to whoever reads first."""
    return re.sub(r"\x1b\[\d+m", "", shown).rstrip().endswith("\n>")


def waiting_with(told: str) -> Callable[[str], bool]:
    return lambda shown: told in shown and waits(shown)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 240))


def engine_of(*written: str | Script, guided: bool = True) -> ScriptedEngine:
    scripts = [script(one) if isinstance(one, str) else one for one in written]
    return ScriptedEngine(scripts, guides=GUIDES if guided else None)


def prompt(engine: ScriptedEngine, number: int = -1) -> str:
    return vocabulary().text(list(engine.requests[number].prompt_ids))


@asynccontextmanager
async def chatting(
    tmp_path: Path, *written: str | Script, guided: bool = True, **settings: Any
) -> AsyncIterator[tuple[Screen, ScriptedEngine]]:
    engine = engine_of(*written, guided=guided)
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_STATE_HOME": str(tmp_path),
        "OPENAI_API_KEY": "a1",
        "TERM": "xterm-256color",
    }
    async with listening(engine, api_keys="ann:a1", **settings) as address:
        command = (*COMMAND, "--url", f"{address.url}/v1")
        async with terminal(command, tmp_path, environment) as screen:
            await screen.shows(waits)
            yield screen, engine


async def piped(
    *arguments: str, typed: str, engine: ScriptedEngine, **environment: str
) -> tuple[int, str, str]:
    async with listening(engine) as address:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "--url", f"{address.url}/v1", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | environment,
        )
        out, err = await process.communicate(typed.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


# --- in a terminal ----------------------------------------------------------------------------


@needs_tmux
def test_an_answer_streams_with_its_thought_dimmed(tmp_path: Path) -> None:
    async def story() -> None:
        async with chatting(tmp_path, THOUGHT) as (screen, engine):
            await screen.line("Hello")
            shown = await screen.shows(waiting_with("tokens/s"), escapes=True)
            assert "\x1b[2mThey greet me." in shown
            assert "\nHello there, friend." in re.sub(r"\x1b\[\d+m", "", shown)
            await screen.line("And again")
            await screen.shows(lambda shown: shown.count("tokens/s") == 2 and waits(shown))
            assert "Hello there, friend.<|end|><|start|>user<|message|>And again" in prompt(engine)
            await screen.type("", "C-d")
            await screen.shows("ended 0")
            history = tmp_path / "trt_responses" / "chat_history"
            assert re.findall(r"^\+(.*)", history.read_text(), re.M) == ["Hello", "And again"]
            assert history.stat().st_mode & 0o077 == 0

    play(story)


@needs_tmux
def test_ctrl_c_stops_the_answer_and_not_the_program(tmp_path: Path) -> None:
    async def story() -> None:
        held = script(f"{FINAL}Once upon a", Stall())
        async with chatting(tmp_path, held, ANSWER) as (screen, engine):
            await screen.line("A tale!")
            await screen.shows("Once upon a")
            await screen.type("", "C-c")
            await screen.shows(waiting_with("(stopped)"))
            await until(lambda: engine.requests[0].state == "aborted")
            await screen.line("Go on.")
            await screen.shows(waiting_with("tokens/s"))
            assert f"A tale!<|end|><|start|>assistant{FINAL}Once upon a" in prompt(engine)
            await screen.type("half a line")
            await screen.shows("> half a line")
            await screen.type("", "C-c")
            await screen.shows(waiting_with("Ctrl-C again quits"))
            await screen.type("", "C-c")
            await screen.shows("ended 0")

    play(story)


@needs_tmux
def test_calls_are_shown_and_answered_by_hand(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([WEATHER]))

    async def story() -> None:
        async with chatting(tmp_path, CALL, ANSWER) as (screen, engine):
            await screen.line(f"/tools {tools}")
            await screen.line("Weather?")
            await screen.shows("result of weather>")
            shown = await screen.shows("calls weather")
            assert '{"city": "Bern"}' in shown
            await screen.line("Snow.")
            await screen.shows("friend.")
            assert "to=assistant<|channel|>commentary<|message|>Snow." in prompt(engine)

    play(story)


@needs_tmux
def test_tools_of_the_server_run_and_calls_are_approved(tmp_path: Path) -> None:
    async def story() -> None:
        written = (
            "<|channel|>analysis to=python code<|message|>6 * 7<|call|>",
            *(ANSWER, calling("find", '{"q": "x"}'), ANSWER),
        )
        python = ScriptedTool("It is 42.")
        async with (
            python_and_demo(tmp_path, python, "a river") as named,
            chatting(tmp_path, *written, guided=False, **named) as (screen, engine),
        ):
            await screen.line("/tools")
            await screen.shows(waiting_with("tools of this server: python, demo"))
            await screen.line("/tools python")
            await screen.line("6 * 7?")
            await screen.shows(waiting_with("It is 42."))
            assert [call.text for call in python.calls] == ["6 * 7"]
            await screen.line("/tools demo")
            await screen.line("Find it.")
            await screen.shows("approve demo.find? y/n>")
            await screen.line("y")
            await screen.shows(waiting_with("a river"))
            assert '{"q": "x"}' in prompt(engine)
            await screen.line("/tools off")
            await screen.shows(waiting_with("tools: off"))

    play(story)


@needs_tmux
def test_commands_change_the_next_request_and_say_what_is_wrong(tmp_path: Path) -> None:
    schema = tmp_path / "a schema.json"
    schema.write_text('{"type": "boolean"}')

    async def story() -> None:
        written = ("Yes.<|end|>", "true<|endoftext|>")
        async with chatting(tmp_path, *written) as (screen, engine):
            for line, told in (
                ("/effort enormous", "is not an effort"),
                ("/schema /no/such/file", "No such file"),
                ("/schema ~nobody-here/file", "No such file"),
                ("/save ~nobody-here/file", "No such file"),
                ("/nonsense", "Unknown command /nonsense"),
                ("/explain", "There is no response yet"),
                ("/temperature hot", "is not a number"),
                ("/help", "/system TEXT"),
            ):
                await screen.line(line)
                await screen.shows(waiting_with(told))
            await screen.line(f"/schema '{schema}'")
            await screen.line("/effort high")
            await screen.line("/instructions Be brief.")
            await screen.line("Is it?")
            await screen.shows(waiting_with("tokens/s"))
            assert "Reasoning: high" in prompt(engine)
            assert "Be brief." in prompt(engine)
            await screen.type("", "C-l")
            await screen.line("/explain")
            await screen.shows("<|start|>assistant<|channel|>final<|message|>")
            saved = tmp_path / "said.md"
            await screen.line(f"/save {saved}")
            await screen.shows("saved ")
            assert "**user**\n\nIs it?" in saved.read_text()
            await screen.line(f"/save {tmp_path / 'said.json'}")
            await screen.shows(lambda shown: shown.count("saved ") == 2)
            said = json.loads((tmp_path / "said.json").read_text())
            assert [item["type"] for item in said] == ["message", "reasoning", "message"]

    play(story)


@needs_tmux
def test_a_question_may_have_many_lines(tmp_path: Path) -> None:
    async def story() -> None:
        async with chatting(tmp_path, ANSWER) as (screen, engine):
            await screen.line("first \\")
            await screen.line("second")
            await screen.shows("friend.")
            assert "first \nsecond<|end|>" in prompt(engine)
            await screen.shows(waits)
            for line in ('"""', "one", "two\\", '"""'):
                await screen.line(line)
            await until(lambda: len(engine.requests) == 2)
            assert "one\ntwo\\<|end|>" in prompt(engine)

    play(story)


@needs_tmux
def test_a_pasted_text_is_one_question_and_an_answer_is_rendered(tmp_path: Path) -> None:
    async def story() -> None:
        written = (
            f"{FINAL}# Steps\n\n- **one**\n- `two`\n\nDone: [here](https://a.example).<|return|>"
        )
        async with chatting(tmp_path, written) as (screen, engine):
            await screen.run("set-buffer", "first\nsecond\nthird")
            await screen.run("paste-buffer", "-p")
            await screen.shows("third")
            assert not engine.requests
            await screen.type("", "Enter")
            shown = await screen.shows(waiting_with("tokens/s"))
            assert "first\nsecond\nthird<|end|>" in prompt(engine)
            assert "**" not in shown
            assert " • one" in shown
            assert "here (https://a.example)" in shown
            await screen.type("/ret", "Tab")
            await screen.shows("> /retry")

    play(story)


@needs_tmux
def test_an_answer_is_retried_edited_copied_saved_and_loaded(tmp_path: Path) -> None:
    async def story() -> None:
        again = f"{FINAL}Another.<|return|>"
        async with chatting(tmp_path, ANSWER, again, again, ANSWER) as (screen, engine):
            await screen.line("Hello")
            await screen.shows(waiting_with("tokens/s"))
            await screen.line("/retry")
            await screen.shows(waiting_with("Another."))
            assert prompt(engine, 0) == prompt(engine, 1)
            await screen.line("/edit")
            await screen.shows("edit> Hello")
            await screen.line(", you")
            await screen.shows(lambda shown: shown.count("Another.") == 2 and waits(shown))
            assert "Hello, you<|end|>" in prompt(engine)
            assert "Another." not in prompt(engine)
            await screen.run("set-option", "-s", "set-clipboard", "on")
            await screen.line("/copy")
            await screen.shows(waiting_with("copied 8 characters"))
            assert await screen.run("show-buffer") == "Another."
            await screen.line(f"/save {tmp_path}/it.json")
            await screen.shows(waiting_with("saved "))
            await screen.line(f"/load {tmp_path}/it.json")
            await screen.shows(waiting_with("loaded 2 items"))
            await screen.line("And?")
            await until(lambda: len(engine.requests) == 4)
            await screen.shows(waits)
            assert f"Hello, you<|end|><|start|>assistant{FINAL}Another.<|end|>" in prompt(engine)
            await screen.line("/model nonsense")
            await screen.shows(waiting_with("does not list 'nonsense'"))
            await screen.line("/model")
            await screen.shows(waiting_with("model: demo of demo"))

    play(story)


@needs_tmux
def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    async def story() -> None:
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
        command = (*COMMAND, "--url", "http://127.0.0.1:1/v1")
        async with terminal(command, tmp_path, environment) as screen:
            shown = await screen.shows("ended 1")
            assert "does not answer: Connection refused" in shown
            assert "`trt-responses serve` starts a server" in shown

    play(story)


# --- in a pipe --------------------------------------------------------------------------------


def test_a_pipe_gets_the_answer_alone_and_no_colours() -> None:
    async def story() -> None:
        status, out, err = await piped(typed="Hi\n", engine=engine_of(THOUGHT))
        assert (status, out) == (0, "Hello there, friend.\n")
        assert "They greet me." in err
        assert "\x1b" not in err
        for alone in ("-q", "-"):
            quiet = await piped(alone, typed="Hi\n", engine=engine_of(THOUGHT))
            assert quiet == (0, "Hello there, friend.\n", "")

    play(story)


def test_words_and_a_pipe_are_one_question() -> None:
    async def story() -> None:
        engine = engine_of(ANSWER)
        status, _, _ = await piped("-q", "Sum", "up:", typed="a text", engine=engine)
        assert status == 0
        assert "Sum up:\n\na text<|end|>" in prompt(engine)

    play(story)


def test_what_a_model_writes_is_shown_and_not_obeyed() -> None:
    async def story() -> None:
        engine = engine_of(f"{FINAL}\x1b]0;owned\x07\x1b[2Jhi<|return|>")
        _, out, _ = await piped("-q", typed="Hi", engine=engine)
        assert "\x1b" not in out
        assert "\x07" not in out
        assert out.endswith("hi\n")

    play(story)


def test_a_fault_is_a_sentence_and_a_status() -> None:
    async def story() -> None:
        engine = engine_of(ANSWER)
        status, out, err = await piped("--model", "none", typed="Hi", engine=engine)
        assert (status, out) == (1, "")
        assert "none" in err
        assert "Traceback" not in err
        status, _, err = await piped(typed="", engine=engine)
        assert (status, "standard input is empty" in err) == (2, True)

    play(story)


def test_a_server_of_its_own_ends_with_the_chat(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: [{say: Hello there.}]")

    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "--serve", f"script://{script}", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        out, err = await process.communicate(b"Hi")
        assert (process.returncode, out.decode(), err.decode()) == (0, "Hello there.\n", "")

    play(story)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    async def story() -> None:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "--serve", "nonsense", "Hi"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        out, err = await process.communicate()
        assert (process.returncode, out) == (1, b"")
        assert "nonsense" in err.decode()
        assert "The server did not start" in err.decode()

    play(story)
