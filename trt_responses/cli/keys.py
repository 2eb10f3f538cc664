"""`trt-responses keys new | list | revoke`. Parses, calls, prints.

A key is printed once, on standard output and alone; what is said about it goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from trt_responses.cli.commands import JSON, add_command, add_group, option
from trt_responses.errors import StartupError
from trt_responses.features.limits.audit import Audit
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
from trt_responses.files import close_to_others
from trt_responses.settings import PREFIX, Settings

if TYPE_CHECKING:
    from trt_responses.cli.commands import Commands


FILE = option("--file", type=Path, help=Settings.model_fields["keys_file"].description)


def add(parents: Commands, name: str, about: str) -> None:
    """Add the command `keys` and its subcommands."""
    commands = add_group(parents, name, about)
    new = add_command(commands, "new", "make a key, and print it once", _new, FILE)
    new.add_argument("owner", help="whom it speaks for; an owner may have several keys")
    new.add_argument("--name", default="default", help="what tells the owner's keys apart")
    new.add_argument("--admin", action="store_true", help="let it read what only admins may")
    new.add_argument(
        "--expires", type=_moment, metavar="WHEN", help="90d, 12h, or 2027-01-31T00:00:00Z"
    )
    new.add_argument(
        "--limits",
        type=_limits,
        metavar="KIND=N,…",
        help=f"the owner's: {', '.join(KINDS)}; the settings say what is not named",
    )
    text = "list the keys, which nobody can show again"
    add_command(commands, "list", text, _list, FILE, JSON)
    revoke = add_command(commands, "revoke", "take keys back", _revoke, FILE)
    revoke.add_argument("key", metavar="OWNER/NAME", help="OWNER/NAME, or OWNER for all of them")


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


def _limits(text: str) -> OwnerLimits:
    try:
        named = dict(part.split("=", 1) for part in text.split(","))
        return OwnerLimits.model_validate(named)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected kinds with whole numbers, such as running=4; there are "
            f"{', '.join(KINDS)}"
        ) from None


def _new(options: argparse.Namespace) -> int:
    path, audit = _files(options)
    secret = new_key()
    try:
        key = Key(
            owner=options.owner,
            name=options.name,
            sha256=digest_of(secret),
            admin=options.admin,
            expires=options.expires,
            limits=options.limits,
        )
    except ValidationError as error:
        field = error.errors(include_url=False)[0]["loc"][0]
        raise StartupError(
            f"The {field} may have 1 to 64 letters, digits and any of _ @ . + -."
        ) from None
    with changing(path) as write:
        known = _read(path) if path.exists() else ()
        if str(key) in map(str, known):
            raise StartupError(f"{key} is there already: give another --name, or revoke it first.")
        _tell(audit, "keys.new", path, [key])
        write((*known, key))
    print(f"{key} in {path}; the key is not shown again:", file=sys.stderr)
    print(secret)
    return 0


def _list(options: argparse.Namespace) -> int:
    keys = _read(_files(options)[0])
    if options.json:
        print(write_keys(keys).decode(), end="")
        return 0
    table = Table("owner", "name", "sha256", "admin", "expires", "limits")
    for key in keys:
        expires = key.expires.isoformat() if key.expires else "never"
        if key.has_expired(time.time()):
            expires += " (expired)"
        limits = key.limits.model_dump(exclude_none=True) if key.limits else {}
        told = ", ".join(f"{kind}={count}" for kind, count in limits.items())
        admin = "yes" if key.admin else ""
        table.add_row(key.owner, key.name, key.sha256[:12], admin, expires, told)
    Console().print(table if keys else "There are no keys: nobody is let in.")
    return 0


def _revoke(options: argparse.Namespace) -> int:
    path, audit = _files(options)
    with changing(path) as write:
        known = _read(path)
        gone = [key for key in known if options.key in (str(key), key.owner)]
        if not gone:
            raise StartupError(f"{path} has no key {options.key!r}: see `trt-responses keys list`.")
        _tell(audit, "keys.revoke", path, gone)
        write([key for key in known if key not in gone])
    for key in gone:
        print(f"revoked {key}")
    return 0


def _files(options: argparse.Namespace) -> tuple[Path, Audit]:
    settings = Settings.from_environment(keys_file=options.file)
    if settings.keys_file is None:
        raise StartupError(f"Which file of keys? Name it with --file or in {PREFIX}KEYS_FILE.")
    close_to_others(settings.data_dir)
    return settings.keys_file, Audit(settings.audit_path)


def _read(path: Path) -> tuple[Key, ...]:
    try:
        return read_file(path)[1]
    except KeyFault as fault:
        raise StartupError(f"{path} cannot be used: {fault}.") from None


def _user() -> str:
    """The name of the person who runs the command; in a container often a number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _tell(audit: Audit, act: str, path: Path, keys: list[Key]) -> None:
    """Write the audit line before the change: a change that cannot be audited is not made."""
    try:
        for key in keys:
            audit.tell(act, by=_user(), file=str(path), key=str(key), admin=key.admin)
    except OSError as error:
        raise StartupError(
            f"{audit.path} cannot be written ({error.strerror}), and nothing was changed."
        ) from None
