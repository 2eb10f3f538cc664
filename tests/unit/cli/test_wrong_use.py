"""Wrong use of every command: status 2, one sentence, and the name of what was typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from trt_responses.cli.main import main
from trt_responses.settings import PREFIX, whole

if TYPE_CHECKING:
    from pathlib import Path

    Output = pytest.CaptureFixture[str]


ENGINES = "--engines-dir=engines"
UNKNOWN = "No engine named absent"
BUILD = f"engine build {ENGINES}"
WRONG: tuple[tuple[str, str, str], ...] = (
    # variables; command line; what the sentence names
    ("", "sing", "argument COMMAND"),
    ("", "serve --loud", "unrecognized arguments: --loud"),
    ("", "serve --port=http", "--port: expected a whole number"),
    ("", "serve --port=70000", "--port: expected at most 65535"),
    ("PORT=http", "serve", f"{PREFIX}PORT: expected a whole number"),
    ("PORT=http", "serve --port=70000", "--port: expected at most 65535"),
    ("", "serve --frontends=0", "--frontends: expected at least 1"),
    ("INSECURE=perhaps", "serve", f"{PREFIX}INSECURE: expected 0 or 1"),
    ("BROWSER=1", "serve", f"{PREFIX}BROWSER: expected 'off', 'boxed' or 'unboxed'"),
    ("", f"serve --port=0 --engine=absent {ENGINES}", f"--engine: {UNKNOWN}"),
    ("ENGINE=absent", f"serve --port=0 {ENGINES}", f"{PREFIX}ENGINE: {UNKNOWN}"),
    ("", f"serve --port=0 --engine=../x {ENGINES}", "--engine: '../x' is not an engine name"),
    ("", f"serve --port=0 --engine=mine@7 {ENGINES}", "no version 7"),
    ("", f"serve --frontends=2 --port=0 --engine=absent {ENGINES}", f"--engine: {UNKNOWN}"),
    ("", "serve --engines-dir=file.txt", "--engines-dir: file.txt is not a directory"),
    ("ENGINES_DIR=file.txt", "serve", f"{PREFIX}ENGINES_DIR: file.txt is not a directory"),
    ("", "serve --host=0.0.0.0", "--host 0.0.0.0: without API keys"),
    ("API_KEYS=key", f"serve --host=0.0.0.0 {ENGINES}", f"{PREFIX}API_KEYS: entry 1"),
    ("ENGINE=/", "serve --port=0", f"{PREFIX}ENGINE: config.json"),
    ("ENGINE=several://a", "serve --port=0", f"{PREFIX}ENGINE: 'a' does not name its model"),
    ("ENGINE=triton://here", "serve --port=0", f"{PREFIX}ENGINE: 'here'"),
    ("TRITON=a:1/b", "serve", f"{PREFIX}TRITON is not a setting any more"),
    (
        "STORE=pots://here",
        "serve --engine grpc://h:1/m",
        f"{PREFIX}STORE: no package brings store 'pots'",
    ),
    ("TOOLS=saw", "serve --engine grpc://h:1/m", f"{PREFIX}TOOLS: no package brings tool 'saw'"),
    (
        "SPEAKS=elvish",
        "serve --engine grpc://h:1/m",
        f"{PREFIX}SPEAKS: no package brings dialect 'elvish'",
    ),
    (
        "",
        "serve --engine steam://h:1/m",
        "--engine: no package brings engine 'steam': expected grpc",
    ),
    ("FRONTENDS=2 STORE=memory://", "serve", f"{PREFIX}STORE: 2 front ends"),
    ("", "engine", "COMMAND"),
    ("", "engine list --engines-dir=file.txt", "--engines-dir: file.txt is not a directory"),
    ("", f"engine show absent {ENGINES}", UNKNOWN),
    ("", f"engine verify absent {ENGINES}", UNKNOWN),
    ("", f"engine remove absent {ENGINES}", UNKNOWN),
    ("", f"engine promote absent 1 {ENGINES}", UNKNOWN),
    ("", f"engine promote mine {ENGINES}", "required: N"),
    ("", f"engine rollback absent {ENGINES}", UNKNOWN),
    ("", f"engine prune absent {ENGINES}", UNKNOWN),
    ("", f"engine prune mine --keep=-1 {ENGINES}", "--keep: '-1': expected a whole number"),
    ("", f"engine journal absent {ENGINES}", "No engine named absent in engines"),
    ("", "engine load mine 2", f"{PREFIX}ADMIN_KEY"),
    ("", "engine load mine 2 --canary=half", "--canary: 'half': expected a share"),
    ("ADMIN_KEY=k", "engine load mine 2 --port=http", "--port: expected a whole number"),
    ("", "engine unload mine", f"{PREFIX}ADMIN_KEY"),
    ("", f"engine adapter add mine style absent {ENGINES}", "absent does not exist"),
    ("", f"engine adapter list absent {ENGINES}", UNKNOWN),
    ("", f"engine adapter remove mine style {ENGINES}", "has no adapter named style"),
    ("", f"{BUILD} --checkpoint=absent", "absent"),
    ("", f"{BUILD} --checkpoint=file.txt", "file.txt"),
    ("", f"{BUILD} --name=../x", "'../x'"),
    ("", f"{BUILD} --kind=vllm", "--kind"),
    ("", f"{BUILD} --kind=trtllm", "--kind trtllm needs --checkpoint"),
    ("", f"{BUILD} --family=qwen3", "--family qwen3"),
    ("", f"{BUILD} --type=f8", "--type"),
    ("", f"{BUILD} --slots=0", "--slots: '0': expected a whole number"),
    ("", f"{BUILD} --gpus=many", "--gpus: 'many': expected a whole number"),
    ("", f"{BUILD} --set=slots", "--set: 'slots': expected NAME=JSON"),
    ("", "keys new", "required: OWNER"),
    ("", "keys new ann", f"pass --file or set {PREFIX}KEYS_FILE"),
    ("", "keys new ann --file=file.txt/keys.json", "--file file.txt/keys.json: cannot be"),
    ("", "keys new ann --file=file.txt", "--file file.txt: Invalid JSON"),
    ("", "keys new a/b --file=keys.json", "OWNER 'a/b'"),
    ("", "keys new ann --name=a/b --file=keys.json", "--name 'a/b'"),
    ("", "keys new ann --expires=soon --file=keys.json", "--expires: 'soon'"),
    ("", "keys new ann --limits=running --file=keys.json", "--limits: 'running'"),
    ("KEYS_FILE=absent.json", "keys list", f"{PREFIX}KEYS_FILE absent.json: cannot be read"),
    ("", "keys list --file=absent.json", "--file absent.json: cannot be read"),
    ("", "keys revoke ann --file=absent.json", "--file absent.json: cannot be read"),
    ("", "chat --url=ftp://here hello", "--url 'ftp://here'"),
    ("", f"export triton absent models {ENGINES}", UNKNOWN),
    ("", f"export triton mine models --version=0 {ENGINES}", "--version: '0'"),
    ("", "explain", "required: ID"),
    ("", "explain resp_x --url=here", "--url 'here'"),
    ("", "explain resp_x --url=http://[::1", "--url 'http://[::1'"),
    ("", "explain resp_x --transcript=Bug.txt", "--transcript Bug.txt"),
    ("", "serve --fault-header", "--fault-header is for servers that play a --script"),
    ("", "serve --script=auto --replay=c", "--script and --replay both name what to serve"),
    ("", "serve --replay=absent.jsonl", "The cassette absent.jsonl cannot be read"),
    ("", "serve --record=ftp://here", "--record ftp://here: expected a URL"),
    ("", "serve --record=http://h:80a", "--record http://h:80a: expected a URL"),
    ("", "serve --record=http://[::1", "--record http://[::1: expected a URL"),
    ("", "cassette absent.jsonl --script", "The cassette absent.jsonl cannot be read"),
    ("", "prove demo --only=lora --report=file.txt", "--report file.txt: not a directory"),
    ("", "drain", f"{PREFIX}ADMIN_KEY"),
    ("ADMIN_KEY=k", "drain --port=http", "--port: expected a whole number"),
    ("", f"doctor --engine=absent {ENGINES}", UNKNOWN),
    ("", "doctor --port=http", "--port: expected a whole number"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an engine `mine` and a file that is neither keys nor a directory."""
    monkeypatch.chdir(tmp_path)
    for name in whole().model_fields:
        monkeypatch.delenv(f"{PREFIX}{name.upper()}", raising=False)
    monkeypatch.setenv(f"{PREFIX}DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "engines").mkdir()
    carded(tmp_path / "engines", "mine", number=1)
    (tmp_path / "file.txt").write_text("{")
    return tmp_path


@pytest.mark.parametrize(("variables", "typed", "named"), WRONG)
def test_wrong_use_ends_with_status_2_and_names_what_was_typed(
    variables: str,
    typed: str,
    named: str,
    place: Path,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in variables.split():
        name, _, value = variable.partition("=")
        monkeypatch.setenv(f"{PREFIX}{name}", value)
    before = sorted(place.glob("engines/**"))
    try:
        status = main(typed.split())
    except SystemExit as end:
        status = int(end.code or 0)
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, ""), printed.err
    sentence = printed.err.splitlines()[-1]
    assert re.match(r"trt-responses[a-z ]*: ", sentence)
    assert named in sentence
    assert "Traceback" not in printed.err
    assert sorted(place.glob("engines/**")) == before
