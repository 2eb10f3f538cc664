"""`trt-responses keys new | list | revoke`. Parses, calls, prints.

A new key is printed once, on standard output; notes about it go to standard error.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
import time
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import JSON, add_command, add_group, option
from trt_responses.errors import StartupError, UsageError
from trt_responses.features.limits.audit import Audit, audit_of
from trt_responses.features.limits.key_file import changing, read_file
from trt_responses.features.limits.keys import (
    KINDS,
    Key,
    KeyFault,
    OwnerLimits,
    digest_of,
    new_key,
    utc_now,
    write_keys,
)
from trt_responses.features.limits.settings import KeySettings
from trt_responses.files import close_folder_to_others
from trt_responses.settings import PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trt_responses.cli.commands import Commands


FILE = option(
    "--file", type=Path, metavar="FILE", help=f"File of keys (default: {PREFIX}KEYS_FILE)"
)


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `keys` and its subcommands."""
    commands = add_group(parents, name, about, example="keys new ann --file keys.json")
    example = "keys new ann --file keys.json --expires 90d --limits running=4"
    new = add_command(commands, "new", "make a key and print it", _new, FILE, example=example)
    new.add_argument("owner", metavar="OWNER", help="Owner of the key; an owner can have several")
    new.add_argument(
        "--name",
        default="default",
        metavar="NAME",
        help="Label of the key, unique per owner (default: default)",
    )
    new.add_argument("--admin", action="store_true", help="Admin key")
    new.add_argument(
        "--expires",
        type=_moment,
        metavar="WHEN",
        help="End of the key: 90d, 12h, or 2027-01-31T00:00:00Z (default: never)",
    )
    new.add_argument(
        "--limits",
        type=_limits,
        metavar="KIND=N,…",
        help=f"Limits of the owner: {', '.join(KINDS)} (default: those of the settings)",
    )
    new.add_argument(
        "--keep",
        type=_seconds,
        metavar="TIME",
        help="Retention of the owner's responses: 90d, 12h, or 0 for none (default: STORE_AGE_S)",
    )
    text, example = "list keys (secrets are never shown again)", "keys list --file keys.json"
    add_command(commands, "list", text, _list, FILE, JSON, example=example)
    example = "keys revoke ann/default --file keys.json"
    revoke = add_command(commands, "revoke", "revoke keys", _revoke, FILE, example=example)
    revoke.add_argument("key", metavar="OWNER/NAME", help="Key, or OWNER for all of the owner's")


def _moment(text: str) -> datetime:
    if found := re.fullmatch(r"(\d{1,5})([dh])", text):
        count = int(found[1])
        return utc_now() + (timedelta(days=count) if found[2] == "d" else timedelta(hours=count))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected 90d, 12h, or a time with its zone such as 2027-01-31T00:00:00Z"
        )
    return moment


def _seconds(text: str) -> int:
    if text == "0":
        return 0
    if found := re.fullmatch(r"(\d{1,5})([dh])", text):
        return int(found[1]) * (86_400 if found[2] == "d" else 3600)
    raise argparse.ArgumentTypeError(f"{text!r}: expected 90d, 12h or 0")


def _limits(text: str) -> OwnerLimits:
    try:
        named = dict(part.split("=", 1) for part in text.split(","))
        return OwnerLimits.model_validate(named)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected KIND=N, such as running=4; the kinds are {', '.join(KINDS)}"
        ) from None


def _new(options: argparse.Namespace) -> int:
    path, named, audit = _files(options)
    secret = new_key()
    try:
        key = Key(
            owner=options.owner,
            name=options.name,
            sha256=digest_of(secret),
            admin=options.admin,
            expires=options.expires,
            limits=options.limits,
            keep_s=options.keep,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = {"owner": "OWNER", "name": "--name"}.get(str(first["loc"][0]), first["loc"][0])
        raise UsageError(
            f"{name} {str(first['input'])[:64]!r}: use 1 to 64 letters, digits and _ @ . + -."
        ) from None
    with _changing(path, named, partial(_show, f"{key} in {path}", secret)) as write:
        known = _read(path, named) if path.exists() else ()
        if str(key) in map(str, known):
            raise UsageError(f"{key} exists: pass another --name, or revoke it first.")
        _note(audit, "keys.new", path, [key])
        write((*known, key))
    return 0


def _show(name: str, secret: str) -> None:
    """Print a key that is not stored before, so that none is that its owner never saw."""
    print(f"{name}; this is the only time that the key is shown:", file=sys.stderr)
    try:
        print(secret, flush=True)
        closed = sys.stdout is None
    except OSError:
        sys.stdout, closed = None, True  # else the exit writes to it again
    if closed:
        raise StartupError("The key could not be written to standard output, and is not stored.")


def _list(options: argparse.Namespace) -> int:
    path, named, _ = _files(options)
    keys = _read(path, named)
    if options.json:
        print(write_keys(keys).decode(), end="")
        return 0
    table = Table("owner", "name", "sha256", "admin", "expires", "limits")
    for key in keys:
        expires = key.expires.isoformat() if key.expires else "never"
        if key.has_expired(time.time()):
            expires += " (expired)"
        limits = key.limits.model_dump(exclude_none=True) if key.limits else {}
        if key.keep_s is not None:
            limits["keep_s"] = key.keep_s
        shown = ", ".join(f"{kind}={count}" for kind, count in limits.items())
        admin = "yes" if key.admin else ""
        table.add_row(key.owner, key.name, key.sha256[:12], admin, expires, shown)
    Console().print(table if keys else "No keys: all requests are rejected.")
    return 0


def _revoke(options: argparse.Namespace) -> int:
    path, named, audit = _files(options)
    with _changing(path, named) as write:
        known = _read(path, named)
        gone = [key for key in known if options.key in (str(key), key.owner)]
        if not gone:
            raise UsageError(f"{path} has no key {options.key!r}: see `trt-responses keys list`.")
        _note(audit, "keys.revoke", path, gone)
        write([key for key in known if key not in gone])
    for key in gone:
        print(f"revoked {key}")
    return 0


def _files(options: argparse.Namespace) -> tuple[Path, str, Audit]:
    """The file of keys, the option that named it, and the audit log."""
    settings = Settings.from_environment(flags={"keys_file": "--file"}, keys_file=options.file)
    if (path := KeySettings.of(settings).keys_file) is None:
        raise UsageError(f"No file of keys: pass --file or set {PREFIX}KEYS_FILE.")
    close_folder_to_others(settings.data_dir)
    return path, settings.option("keys_file"), audit_of(settings)


@contextmanager
def _changing(
    path: Path, named: str, before: Callable[[], None] = lambda: None
) -> Iterator[Callable[[Sequence[Key]], None]]:
    try:
        with changing(path, before) as write:
            yield write
    except OSError as error:
        raise UsageError(f"{named} {path}: cannot be written ({error.strerror}).") from None


def _read(path: Path, named: str) -> tuple[Key, ...]:
    try:
        return read_file(path)[1]
    except KeyFault as fault:
        raise UsageError(f"{named} {path}: {fault}.") from None


def _user() -> str:
    """The name of the user who runs the command, or the number of one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _note(audit: Audit, act: str, path: Path, keys: list[Key]) -> None:
    """Write the audit lines first: without them the keys do not change."""
    try:
        for key in keys:
            audit.tell(act, by=_user(), file=str(path), key=str(key), admin=key.admin)
    except OSError as error:
        raise StartupError(
            f"Cannot write the audit log {audit.path} ({error.strerror}); the keys are unchanged."
        ) from None
