"""`make release`: builds the wheel and the sdist, tries them, and says what is left for a person.

Each interpreter gets an empty environment with the wheel alone, and in an empty directory a server
of it answers one request, and one of a GGUF file. The sdist must give the same wheel. Nothing is
published from here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from scripts.docs_session import free_port
from trt_responses import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
START_S = 300
MODELS = ("capitals.gguf", "capitals.gguf", "capitals")
"""A file, the same again, and the name of the engine that was prepared from it."""
PUBLISH = """
Left for you, once the tests are green (`make check test-all`):
  git tag -a v{version} -m 'trt_responses {version}' && git push origin v{version}
  {python} -m pip install twine && twine check dist/* && twine upload dist/*
  and the release's page: the section {version} of CHANGELOG.md.
"""


class ReleaseFault(Exception):
    """Why this is no release yet, in one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build a release and try it.")
    parser.add_argument("pythons", nargs="*", default=PYTHONS, help="interpreters to try it with")
    try:
        check_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__)
        wheel, sdist = build(DIST)
        check_sdist(sdist, wheel)
        tried = [each for each in parser.parse_args().pythons if try_wheel(each, wheel)]
        if not tried:
            raise ReleaseFault("no interpreter could try the wheel")
    except ReleaseFault as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    print(f"{wheel.name} and {sdist.name} work on {', '.join(tried)}.")
    print(PUBLISH.format(version=__version__, python=sys.executable))
    return 0


def check_changelog(text: str, version: str) -> None:
    """The newest section is this version's, with its date."""
    first = re.search(r"^## (.+)$", text, re.M)
    if first is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", first[1]):
        shown = first[1] if first else "none"
        raise ReleaseFault(f"CHANGELOG.md begins with {shown!r}, not with '{version} (its date)'")


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of this checkout, in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "--directory", str(folder))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    if f"-{__version__}-" not in wheel.name:
        raise ReleaseFault(f"{wheel.name} is not of version {__version__}")
    return wheel, sdist


def check_sdist(sdist: Path, wheel: Path) -> None:
    """The wheel that the sdist gives has the same files."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder, filter="data")
        (source,) = Path(folder).iterdir()
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", at=source)
        (again,) = (source / "dist").glob("*.whl")
        differ = files(wheel) ^ files(again)
    if differ:
        raise ReleaseFault(f"the sdist gives another wheel: {sorted(differ)[:5]}")


def files(wheel: Path) -> set[tuple[str, int]]:
    """What a wheel holds: each file with its checksum, but the list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            (e.filename, e.CRC) for e in archive.infolist() if not e.filename.endswith("RECORD")
        }


def try_wheel(python: str, wheel: Path) -> bool:
    """Install it alone, and have one answer of its server. Says so if there is no such Python."""
    if not runs(python):
        print(f"{python}: not on this machine, not tried")
        return False
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        environment = Path(folder) / "environment"
        run(python, "-m", "venv", str(environment))
        run(str(environment / "bin/pip"), "--quiet", "install", str(wheel))
        program = environment / "bin/trt-responses"
        version = run(str(program), "--version").strip()
        if version != __version__:
            raise ReleaseFault(f"{python}: --version says {version!r}")
        empty = Path(folder) / "empty"
        empty.mkdir()
        answers = [answer_of(program, empty, "demo")]
        (model,) = empty.glob("engines/demo/*/model.gguf")
        model.rename(empty / "capitals.gguf")
        shutil.rmtree(empty / "engines")
        answers += [answer_of(program, empty, "capitals", typed) for typed in MODELS]
    if wrong := [answer for answer in answers if "Paris" not in answer]:
        raise ReleaseFault(f"{python}: wrong capital of France: {wrong[0]!r}")
    print(f"{python}: installed, served, answered")
    return True


def runs(python: str) -> bool:
    """Whether there is such an interpreter; a shim of pyenv may have none behind it."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", "0"], capture_output=True).returncode == 0


def answer_of(program: Path, folder: Path, model: str, *typed: str) -> str:
    """What a new server of a model answers that starts in a folder, which is its home too. `typed`:
    the command's MODEL."""
    port = free_port()
    inherited = {
        k: v for k, v in os.environ.items() if k.split("_")[0] not in ("PYTHONPATH", "TRT")
    }
    with subprocess.Popen(
        [str(program), "serve", *typed, "--port", str(port)],
        cwd=folder,
        env=inherited | {"HOME": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            if "is ready" not in server.stdout.readline():
                raise ReleaseFault(f"{program}: the server did not start")
            return ask(port, model)
        finally:
            server.terminate()


def ask(port: int, model: str) -> str:
    body = {"model": model, "input": "What is the capital of France?", "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/responses",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=START_S) as reply:
        return str(json.load(reply)["output"][-1]["content"][0]["text"])


def run(*command: str, at: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseFault(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
