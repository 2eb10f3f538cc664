"""`engine adapter add | list | remove` on the command line.

Budget: 1 s on one core.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts.checkpoints import TINY
from scripts.tiny_adapter import write_adapter
from tests.support.cards import carded
from trt_responses.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_an_adapter_is_added_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, directory = carded(tmp_path, kind="trtllm", number=2)
    source = write_adapter(tmp_path / "source", TINY)

    def said(*arguments: str) -> str:
        assert main(["engine", "adapter", *arguments, "--engines-dir", str(tmp_path)]) == 0
        return capsys.readouterr().out

    assert "mine@2 has no adapters." in said("list", "mine")
    told = said("add", "mine@2", "style", str(source))
    assert told.startswith("added style of mine@2, rank 4, modules attn_output, attn_q, attn_v; ")
    assert "mine:style" in told
    assert "style" in said("list", "mine")
    (listed,) = json.loads(said("list", "mine", "--json"))
    assert (listed["name"], listed["source"]) == ("style", "source")
    assert said("remove", "mine", "style") == "removed style of mine@2\n"
    assert not (directory / "adapters" / "style").exists()


def test_what_is_wrong_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carded(tmp_path, kind="onnx", number=1)
    given = ("mine", "style", str(tmp_path), "--engines-dir", str(tmp_path))
    assert main(["engine", "adapter", "add", *given]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "mine@1 is of kind onnx, which does not support adapters" in told
