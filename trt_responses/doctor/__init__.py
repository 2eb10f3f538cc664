"""Checks of what this machine can run, each a value with its remedy.

Combines the checks of the machine, the engines and the server. Prints nothing.
"""

from __future__ import annotations

from trt_responses.backends.dialects import dialect_facts
from trt_responses.backends.settings import EngineSettings
from trt_responses.doctor.check import Check as Check  # exported
from trt_responses.doctor.check import as_json as as_json
from trt_responses.doctor.check import exit_status as exit_status
from trt_responses.doctor.check import lines as lines
from trt_responses.doctor.elsewhere import elsewhere_checks
from trt_responses.doctor.engines import dialect_checks, engine_checks, vocabulary_check
from trt_responses.doctor.machine import (
    cpu_check,
    disk_check,
    memory_check,
    model_checks,
    package_checks,
    python_check,
    writable_checks,
)
from trt_responses.doctor.server import server_checks
from trt_responses.doctor.store import store_check
from trt_responses.doctor.tensorrt import gpu_check, numpy_checks, tensorrt_llm_check
from trt_responses.doctor.tools import (
    browser_tool_check,
    mcp_tool_check,
    python_tool_check,
    shell_tool_check,
)
from trt_responses.prepare.hardware import this_hardware
from trt_responses.prepare.machine import this_machine
from trt_responses.settings import Settings


def checks(settings: Settings) -> list[Check]:
    """All checks, from general to special. Takes seconds; starts nothing."""
    local = EngineSettings.of(settings)
    hardware = this_hardware(settings.engines_dir, local.trtllm_python)
    return [
        python_check(),
        *package_checks(),
        cpu_check(),
        memory_check(),
        disk_check(settings.engines_dir, hardware.free_disk_bytes),
        *writable_checks(settings),
        store_check(settings),
        vocabulary_check(),
        gpu_check(hardware),
        tensorrt_llm_check(hardware),
        *numpy_checks(),
        *model_checks(),
        *engine_checks(settings.engines_dir, this_machine(local.trtllm_python)),
        *dialect_checks(settings.engines_dir, dialect_facts),
        *elsewhere_checks(settings),
        python_tool_check(settings),
        shell_tool_check(settings),
        browser_tool_check(settings),
        mcp_tool_check(settings),
        *server_checks(settings),
    ]
