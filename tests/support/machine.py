"""A machine of a test's own: a copy-on-write copy of this one's files, its own processes, network,
names of hosts and, if wanted, systemd. Nothing that is written in it is kept, and leaving the
`with` ends all of its processes.

What a package index or an image would bring is lent by the environment of the tests, read-only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.asgi import PATIENCE_S
from tests.support.processes import children_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PYTHON, PACKAGES = "/usr/local/lent-python", "/usr/local/lent-packages"
SYSTEMD = "/usr/lib/systemd/systemd"
OFFLINE = {
    "PIP_NO_COMPILE": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
}
"""pip reads the last of these the wrong way round: 0 is "no isolation"."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A Python whose environments find the lent packages, which stand for those of an index.
LENT = f"""#!/bin/sh
case "$1 $2" in
  "-m pip") echo "lent: $*"; exit 0;;
  "-m virtualenv") shift 2; set -- -m venv "$@";;
esac
{PYTHON}/bin/python3 "$@" || exit
if [ "$1 $2" = "-m venv" ]; then
  for made; do :; done
  for site in "$made"/lib/python3*/site-packages; do echo {PACKAGES} >"$site/lent.pth"; done
fi
"""
BOOT = f"""
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$BASE"
cd "$BASE"
mkdir upper work root
for folder in opt srv root home etc/systemd/system; do  # empty ones
  mkdir -p "upper/$folder"
  "$LENT_PYTHON/bin/python3" -c 'import os, sys; os.setxattr(*sys.argv[1:3], b"y")' \\
    "upper/$folder" trusted.overlay.opaque
done
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --rbind /dev dev
mount --rbind /sys sys
if [ -n "$CGROUP" ]; then
  mount -t tmpfs tmpfs sys/fs/cgroup
  mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
mkdir -p ./{PYTHON} ./{PACKAGES}
mount --bind "$LENT_PYTHON" ./{PYTHON}
mount --bind "$LENT_PACKAGES" ./{PACKAGES}
printf %s "$LENT" >usr/local/bin/python
chmod 755 usr/local/bin/python
cp usr/local/bin/python usr/local/bin/python3
printf '127.0.0.1 localhost %s\n' "$HOSTS" >etc/hosts
echo {PYTHON}/lib >etc/ld.so.conf.d/00-lent.conf
chroot . ldconfig
ip link set lo up
exec chroot . sh -c "echo >&3; exec 3>&-; exec $INIT"
"""


@cache
def why_not(*programs: str) -> str | None:
    """Why no machine can be had here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux, for namespaces"
    for name in ("unshare", "nsenter", "setpriv", "ip", *programs):
        if shutil.which(name) is None and not Path(name).exists():
            return f"needs the program {name}"
    if SYSTEMD in programs and not any(os.access(group, os.W_OK) for group in _cgroups()):
        return "needs a cgroup2 that can be written"
    command = ["unshare", "-m", "-p", "-n", "-f", "sh", "-c", _TRY, sys.executable]
    tried = subprocess.run(command, capture_output=True, text=True)
    return f"needs namespaces and overlay mounts: {tried.stderr}" if tried.returncode else None


def _cgroups() -> list[Path]:
    """Where cgroup2 is mounted."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(words[1]) for words in mounts if words[2] == "cgroup2"]


UP = """until [ -S /run/systemd/private ]; do sleep 0.02; done
systemctl --wait is-system-running || :"""
_TRY = """mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
"$0" -c 'import os; os.setxattr("/mnt/u", "trusted.overlay.opaque", b"y")' &&
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r"""


class Machine:
    """Runs commands in the machine. `pid` is its first process, as this machine numbers it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._enter = ["nsenter", f"--target={pid}", "-m", "-p", "-n", "-u", "-i", "-r"]

    def command(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str = "/",
    ) -> list[str]:
        """The command that runs one in the machine, in an environment of that alone."""
        variables = [
            f"{name}={value}" for name, value in ({"PATH": PATH} | dict(env or {})).items()
        ]
        start = ["/usr/bin/env", "-i", f"--chdir={cwd}", *variables]
        if user is not None:
            uid, _, gid = user.partition(":")
            privileges = ("--clear-groups", "--no-new-privs", "--bounding-set=-all")
            start = ["setpriv", f"--reuid={uid}", f"--regid={gid or uid}", *privileges, *start]
        return [*self._enter, *start, *command]

    def run(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str = "/",
        given: bytes | None = None,
    ) -> str:
        """What a command prints; a text is one of `sh`. A status that is not 0 is an error."""
        words = ["sh", "-ec", command] if isinstance(command, str) else command
        ran = subprocess.run(
            self.command(words, env=env, user=user, cwd=cwd),
            input=given,
            capture_output=True,
            timeout=5 * PATIENCE_S,
        )
        printed = (ran.stdout + ran.stderr).decode(errors="replace")
        assert ran.returncode == 0, f"{words}: status {ran.returncode}\n{printed}"
        return printed

    def put(self, source: Path, target: str) -> None:
        """Copy a file or a folder of the real machine to a path of this one."""
        packed = subprocess.run(
            ["tar", "-C", str(source.parent), "--exclude=__pycache__", "-cf", "-", source.name],
            capture_output=True,
            check=True,
        )
        name = f"s#^{source.name}#{Path(target).name}#"
        folder = str(Path(target).parent)
        self.run(["mkdir", "-p", folder])
        unpack = ["tar", "-C", folder, "--no-same-owner", f"--transform={name}", "-xf", "-"]
        self.run(unpack, given=packed.stdout)

    def take(self, path: str, target: Path) -> None:
        """Copy a path of the machine to one of the real machine, with its modes."""
        packed = subprocess.run(
            self.command(["tar", "-C", str(Path(path).parent), "-cf", "-", Path(path).name]),
            capture_output=True,
            check=True,
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["tar", "-C", str(target.parent), "-xf", "-"], input=packed.stdout, check=True
        )

    def write(self, path: str, text: str) -> None:
        self.run(["mkdir", "-p", str(Path(path).parent)])
        self.run(["tee", path], given=text.encode())

    def close_files(self, *writable: str) -> None:
        """Nothing can be written from here on but below these folders."""
        for folder in (*writable, "/tmp"):
            self.run(["mkdir", "-p", folder])
            self.run(["mount", "--bind", folder, folder])
        self.run(["mount", "-o", "remount,bind,ro", "/"])

    def ask(self, url: str, body: Any = None, key: str | None = None) -> Any:
        """The JSON that a server of the machine answers."""
        headers = ["-H", f"authorization: Bearer {key}"] if key else []
        if body is not None:
            headers += ["-H", "content-type: application/json", "-d", json.dumps(body)]
        limit = ("--max-time", str(PATIENCE_S))
        return json.loads(self.run(["curl", "-sS", "--fail-with-body", *limit, *headers, url]))


@contextmanager
def machine(folder: Path, *, hosts: Sequence[str] = (), systemd: str = "") -> Iterator[Machine]:
    """A machine, which ends with the `with`. `hosts` are names that it answers to itself. With the
    name of a target, `systemd` is its first process, and begins with that."""
    base = folder / f"machine-{os.urandom(4).hex()}"
    base.mkdir(parents=True)
    init = f"{SYSTEMD} --system --unit={systemd}" if systemd else "sleep infinity"
    with _cgroup(base.name) if systemd else nullcontext() as group:
        given = os.environ | {
            "BASE": str(base),
            "LENT": LENT,
            "LENT_PYTHON": sys.base_prefix,
            "LENT_PACKAGES": sysconfig.get_paths()["purelib"],
            "HOSTS": " ".join(hosts),
            "INIT": init,
            "CGROUP": str(group or ""),
            "container": "test",
        }
        spaces = f"-m -p -n -u -i {'-C' if group else ''} -f --kill-child"
        begin = f'exec unshare {spaces} sh -c "$0" 3>&1 >&2'
        if group:
            begin = f"echo $$ >{group}/cgroup.procs; {begin}"
        command = ["setpriv", "--pdeathsig=KILL", "sh", "-ec", begin, BOOT]
        with (
            (folder / f"{base.name}.log").open("w+b") as log,
            subprocess.Popen(
                command, env=given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            ) as outer,
        ):
            try:
                assert outer.stdout is not None
                if not outer.stdout.readline():
                    log.seek(0)
                    raise AssertionError(log.read().decode(errors="replace"))
                [first] = children_of(outer.pid)
                made = Machine(first)
                if systemd:
                    made.run(UP)
                yield made
            finally:
                outer.kill()


@contextmanager
def _cgroup(name: str) -> Iterator[Path]:
    """A group for all of a machine's processes, in which systemd may make its own."""
    group = _cgroups()[0] / f"test-{name}"
    group.mkdir()
    try:
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        for made in sorted(group.rglob("*"), reverse=True):
            if made.is_dir():
                _remove(made)
        _remove(group)


def _remove(group: Path) -> None:
    """Remove an emptied group, once the kernel has let go of its last process."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return group.rmdir()
        except OSError:
            assert time.monotonic() < until, f"{group} is not empty"
