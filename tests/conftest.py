"""Fixtures that every kind of test uses."""

from __future__ import annotations

import ctypes
import gc
import logging
import resource
import sys
from collections import Counter
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers

from tests.suites import ALL, PEAK_MB, SUITES, Suite
from trt_responses.features.action_tools.calls import CALLS as ACTION_CALLS
from trt_responses.features.action_tools.tools import CHOICES as ACTION_CHOICES
from trt_responses.features.action_tools.tools import KINDS as ACTION_TOOLS
from trt_responses.features.agent_messages.install import AgentMessage
from trt_responses.features.compaction.items import CompactionTrigger
from trt_responses.features.hosted_tools.tools import CHOICES as HOSTED_CHOICES
from trt_responses.features.hosted_tools.tools import TOOLS as HOSTED_TOOLS
from trt_responses.features.input_settings.install import ITEMS as SETTING_ITEMS
from trt_responses.features.known_tools.install import KNOWN
from trt_responses.features.open_responses.install import OPEN_RESPONSES
from trt_responses.features.programs.items import ITEMS as PROGRAM_ITEMS
from trt_responses.features.programs.items import ProgramChoice, ProgramTool
from trt_responses.features.tool_items.custom_calls import CustomCall
from trt_responses.features.tool_items.items import ITEMS
from trt_responses.features.tool_search.items import ITEMS as SEARCH_ITEMS
from trt_responses.features.tool_search.items import ToolSearchTool
from trt_responses.log.item_events import CALLS
from trt_responses.setup import installed
from trt_responses.wire.choice import CHOICES
from trt_responses.wire.dialect import DIALECTS
from trt_responses.wire.known_tools import MEMORIES
from trt_responses.wire.past_calls import KINDS
from trt_responses.wire.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from trt_responses.tokens.vocabulary import Vocabulary

pytest.register_assert_rewrite("tests.support")

# For tests without a server, which would install them.
KINDS.update({**ITEMS, **SEARCH_ITEMS, **SETTING_ITEMS, "agent_message": AgentMessage})
KINDS.update({**PROGRAM_ITEMS, "compaction_trigger": CompactionTrigger})
TOOLS.update({**ACTION_TOOLS, **HOSTED_TOOLS, "tool_search": ToolSearchTool})
TOOLS["programmatic_tool_calling"] = ProgramTool
CHOICES["programmatic_tool_calling"] = ProgramChoice
CHOICES.update({**ACTION_CHOICES, **HOSTED_CHOICES})
DIALECTS[OPEN_RESPONSES.name] = OPEN_RESPONSES
MEMORIES[:] = [KNOWN]
CALLS.update(ACTION_CALLS, custom=CustomCall)

# The same examples in each run, however busy the machine is.
settings.register_profile(
    "everywhere",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("everywhere")
# patched: Hypothesis has no setting for it
providers._get_local_constants = lambda: providers._local_constants
"""Without this, constants of those modules that happen to be imported go into the examples."""
# patched: no package comes or goes, and a look at all of them is a fifth of what an app takes
installed.entry_points = cache(entry_points)  # type: ignore[attr-defined, assignment]


M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8


def return_large_memory() -> None:
    """Have glibc return what is large as soon as it is freed.

    By itself it takes arrays of megabytes from its heap, once one was freed, and the heap keeps
    what lies under a small one that lives.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)
        mallopt(M_ARENA_MAX, 2)


return_large_memory()


GROWTH = 16 << 20
"""So many more bytes than when memory was last given back make it worth the third of a second."""


MUCH = 4 * GROWTH
"""The same between two tests of one file, whose fixtures are still there."""


def give_back(config: pytest.Config) -> None:
    """Free what modules' tests left: cycles, such as sessions of onnxruntime and apps of servers,
    which have frozen all that was there when they were ready, and the reports that a worker of
    pytest-xdist keeps and never shows."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and hasattr(config, "workerinput"):
        reporter.stats.clear()
    if resident() < config.stash[RESIDENT] + GROWTH:
        return
    gc.unfreeze()
    collect_and_freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    config.stash[RESIDENT] = resident()


def resident() -> int:
    """The bytes that this process has in memory; those it had at most where there is no /proc."""
    if STATM.exists():
        return int(STATM.read_text("ascii").split()[1]) * resource.getpagesize()
    return peak_mb() << 20


def peak_mb() -> int:
    unit = 1 << (20 if sys.platform == "darwin" else 10)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def make_tables_of_unicode() -> None:
    """Have Hypothesis keep its tables on disk, where they are missing: a worker would take 200 MB
    for them at the first text that it draws."""
    charmap.charmap()
    charmap.intervals_from_codec("utf-8")


SUITE = pytest.StashKey[Suite]()
RESIDENT = pytest.StashKey[int]()
"""What was left in memory when it was last given back."""
PEAKS = pytest.StashKey[list[int]]()
"""The megabytes that each process of the run took at most."""
STATM = Path("/proc/self/statm")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite", choices=SUITES, default=ALL, help="a part: see tests/suites.py")
    parser.addoption("--room", help="the tests of one room of the package, such as cli")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUITE] = Suite(config.getoption("suite"), config.getoption("room"))
    config.stash[PEAKS] = []


@pytest.hookimpl(trylast=True)  # behind Hypothesis' own, and before pytest-xdist starts its workers
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        make_tables_of_unicode()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.stash[SUITE].has_file(collection_path) else True


@pytest.hookimpl(wrapper=True, tryfirst=True)  # its end is behind pytest-randomly's
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    suite, left_out = config.stash[SUITE], []
    for item in items.copy():
        name, slow = item.name.partition("[")[0], item.get_closest_marker("slow") is not None
        if not suite.has_test(item.path, name, slow=slow):
            items.remove(item)
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    yield
    tests = Counter(item.path for item in items if suite.keeps_files_whole)
    items.sort(key=lambda item: (earliness(item), tests[item.path]), reverse=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where a worker of pytest-xdist runs whole files, in the order of their first tests."""
    if not config.stash[SUITE].keeps_files_whole or config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return scope.partition("::")[0] if scope == nodeid else scope

    config.option.loadscopereorder = False
    return ByFile(config, log)


def earliness(item: pytest.Item) -> float:
    """Of a test that is long, or takes megabytes while the process has few: the greatest begins
    first, so that no process ends long after the others."""
    mark = item.get_closest_marker("early")
    return mark.args[0] if mark else 0


def collect_and_freeze() -> None:
    """Keep all modules out of the garbage collector: each full collection would walk them again.

    The second collection is for the count of old objects: one begins by itself when a quarter as
    many came since, and a quarter of all modules' objects never come.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


def pytest_collection_finish(session: pytest.Session) -> None:
    collect_and_freeze()
    session.config.stash[RESIDENT] = resident()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    done = yield
    is_last = nextitem is None or nextitem.path != item.path
    if is_last or resident() > item.config.stash[RESIDENT] + MUCH:
        give_back(item.config)
    return done


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist ends; this is the process that started it."""
    if "peak_mb" in getattr(node, "workeroutput", {}):
        node.config.stash[PEAKS].append(node.workeroutput["peak_mb"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a process took more memory than its suite may."""
    config, peak = session.config, peak_mb()
    if hasattr(config, "workeroutput"):
        config.workeroutput["peak_mb"] = peak
        return
    config.stash[PEAKS].append(peak)
    peaks = config.stash[PEAKS]
    too_much = max(peaks) > PEAK_MB[config.getoption("suite")]
    if too_much and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    peaks, most = config.stash[PEAKS], PEAK_MB[config.getoption("suite")]
    verdict = "MORE THAN" if max(peaks) > most else "at most"
    each = ", ".join(str(peak) for peak in peaks)
    terminalreporter.write_line(f"memory of each process: {each} MB, {verdict} {most}")


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    from tests.support import tokens

    return tokens.vocabulary()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A client may set the level of the log, which is the process's: the next test has its own."""
    log = logging.getLogger("trt_responses")
    before = log.level
    yield
    log.setLevel(before)
