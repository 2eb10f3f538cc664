"""The published protocol compiled by protoc, as a server would use them: modules of messages and
services, apart from what the package makes of its own descriptions."""

from __future__ import annotations

import atexit
import importlib
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

PROTOS = Path(__file__).parents[1] / "data" / "protos"


DESCRIBED = {"trtllm.binpb": "trtllm_service.proto", "vllm.binpb": "vllm_engine.proto"}


def describe(folder: Path) -> None:
    """Write the protocols' descriptions, each with all that it imports."""
    for name, file in DESCRIBED.items():
        compile_protos(file, "--include_imports", f"--descriptor_set_out={folder / name}")


def compile_protos(name: str, *options: str) -> None:
    """Compile every file that one file of the published ones needs."""
    from grpc_tools import protoc

    well_known = Path(protoc.__file__).parent / "_proto"
    status = protoc.main(["protoc", f"-I{PROTOS}", f"-I{well_known}", *options, name])
    assert status == 0, f"{name} cannot be compiled"


@cache
def bindings() -> Path:
    """The folder of the generated modules, which stands on the path from now on."""
    folder = Path(tempfile.mkdtemp(prefix="grpc-bindings-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in sorted(PROTOS.rglob("*.proto")):
        name = str(path.relative_to(PROTOS))
        compile_protos(name, f"--python_out={folder}", f"--grpc_python_out={folder}")
    sys.path.insert(0, str(folder))
    return folder


def module(name: str) -> Any:
    """One generated module, such as `trtllm_service_pb2`."""
    bindings()
    return importlib.import_module(name)
