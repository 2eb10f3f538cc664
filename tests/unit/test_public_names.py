"""What `trt_responses` itself offers, and that it costs nothing before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trt_responses
from tests.support.scripted.engine import ScriptedEngine
from trt_responses import Settings, __version__, create_app
from trt_responses.app import create_app as there
from trt_responses.settings import Settings as ThereToo

PACKAGE = Path(trt_responses.__path__[0])


def test_the_names_are_those_of_their_modules() -> None:
    assert create_app is there
    assert Settings is ThereToo
    assert __version__.count(".") == 2
    assert set(trt_responses.__all__) == {"create_app", "Settings", "__version__"}
    assert not hasattr(trt_responses, "nothing")


def test_they_are_typed() -> None:
    app = create_app(Settings(model="demo"), engine=ScriptedEngine([]))
    assert app.title == "trt_responses"
    assert (PACKAGE / "py.typed").is_file()


def test_nothing_is_loaded_until_it_is_used() -> None:
    program = (
        "import sys, trt_responses; trt_responses.__version__\n"
        "heavy = {'fastapi', 'pydantic', 'numpy', 'uvicorn'} & set(sys.modules)\n"
        "ours = [name for name in sys.modules if name.startswith('trt_responses.')]\n"
        "assert not heavy and not ours, (heavy, ours)\n"
        "trt_responses.Settings; assert 'fastapi' not in sys.modules\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        timeout=60,
    )
    assert (told.returncode, told.stderr) == (0, "")


def test_the_package_shows_its_public_names_alone() -> None:
    import trt_responses.app

    assert dir(trt_responses) == sorted(trt_responses.__all__)
