"""API keys: what is known of one, how a file of them is spelled, and whose a key is.

What is kept of a key is its SHA-256: the key itself exists only while it is made or shown.
Knows no HTTP, and not where a file of keys stands or when it changes.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Annotated

import orjson
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    ValidationError,
)

PREFIX = "trt_"
OPERATOR = "operator"
"""The name of the admin whose key stands in the settings."""
KEY_BYTES = 32
"""256 random bits: too many to guess, so that a plain SHA-256 of it is safe to keep."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_@.+-]{1,64}$")]
"""The name of an owner or of a key. It stands in paths `owner/name`, in logs and in the audit
file."""


class KeyFault(Exception):
    """A file of keys cannot be used. The message holds none of its digests."""


class OwnerLimits(BaseModel):
    """What an owner may have at once and use in a minute; None where there is no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    running: PositiveInt | None = None
    waiting: NonNegativeInt | None = None
    requests_per_minute: PositiveInt | None = None
    tokens_per_minute: PositiveInt | None = None


NO_LIMITS = OwnerLimits()
KINDS = tuple(OwnerLimits.model_fields)


class Key(BaseModel):
    """One key as its file describes it: a digest and no key."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    owner: Name
    name: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    admin: bool = False
    expires: AwareDatetime | None = None
    limits: OwnerLimits | None = None
    """Limits of its owner that this key names; the settings say the rest."""
    keep_s: NonNegativeInt | None = None
    """Seconds for which its owner's records are kept; 0: nothing is; None: as the settings say."""

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    def has_expired(self, now_s: float) -> bool:
        """Whether the key's time is over."""
        return self.expires is not None and self.expires.timestamp() <= now_s


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: tuple[Key, ...]


def new_key() -> str:
    """A new random key."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def read_keys(text: bytes) -> tuple[Key, ...]:
    """The keys in the text of a file. Raises a `KeyFault` when any part of it is wrong."""
    try:
        keys = _File.model_validate_json(text).keys
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise KeyFault(f"{place}: {first['msg']}" if place else first["msg"]) from None
    for known, what in (({str(key) for key in keys}, "name"), ({k.sha256 for k in keys}, "sha256")):
        if len(known) != len(keys):
            raise KeyFault(f"two keys have the same {what}")
    return keys


def write_keys(keys: Iterable[Key]) -> bytes:
    """The text of a file that holds these keys, one a line, so that a change of a key is a change
    of a line."""
    lines = [
        orjson.dumps(key.model_dump(mode="json", exclude_defaults=True)).decode() for key in keys
    ]
    return ('{"keys": [\n  ' + ",\n  ".join(lines) + "\n]}\n").encode()


class KeyRing:
    """Looks up the owner of a key, among the keys of the settings and those of a file."""

    def __init__(
        self,
        owners: Mapping[str, str] | None = None,
        *,
        from_file: bool = False,
        admin_key: str | None = None,
        limits: OwnerLimits = NO_LIMITS,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._owners = {digest_of(key): owner for key, owner in (owners or {}).items()}
        self._listed: dict[str, Key] = {}
        self._limited: dict[str, list[Key]] = {}
        """The keys of each owner that name limits of their own."""
        self._kept_s: Mapping[str, int] = {}
        self._limits = limits
        self._admin_digest = "" if admin_key is None else digest_of(admin_key)
        self._clock_s = clock_s
        self.required = from_file or bool(self._owners)
        """Whether a request needs a key. With a file every request does, also when the file has
        none."""

    def hold(self, keys: Iterable[Key]) -> None:
        """Use these as the file's keys from now on. Raises a `KeyFault`, and changes nothing, when
        one of them is another owner's by the settings."""
        listed = {key.sha256: key for key in keys}
        for digest, key in listed.items():
            if self._owners.get(digest, key.owner) != key.owner:
                raise KeyFault(f"the key {key} is another owner's in the settings")
        self._listed = listed
        self._kept_s = _shortest(listed.values())
        self._limited = defaultdict(list)
        for key in listed.values():
            if key.limits is not None:
                self._limited[key.owner].append(key)

    def kept_s(self) -> Mapping[str, int]:
        """Seconds for which an owner's records are kept, for those whose keys say: the shortest."""
        return self._kept_s

    def limits_of(self, owner: str) -> OwnerLimits:
        """An owner's limits: of each kind the largest that one of its keys names, so that a change
        of keys takes nothing away before the old one has gone; else the settings'."""
        if not self._limited:
            return self._limits
        now_s = self._clock_s()
        named = [
            key.limits
            for key in self._limited.get(owner, ())
            if key.limits is not None and not key.has_expired(now_s)
        ]
        if not named:
            return self._limits
        return OwnerLimits(**{kind: self._largest(kind, named) for kind in KINDS})

    def _largest(self, kind: str, named: Sequence[OwnerLimits]) -> int | None:
        values = [value for limits in named if (value := getattr(limits, kind)) is not None]
        usual: int | None = getattr(self._limits, kind)
        return max(values, default=usual)

    def owner_of(self, key: str) -> str | None:
        """The owner that a key speaks for. Keys are looked up by digest, so that no comparison's
        time tells anything of a key."""
        digest = digest_of(key)
        if (owner := self._owners.get(digest)) is not None:
            return owner
        found = self._valid(digest)
        return None if found is None else found.owner

    def admin_of(self, key: str) -> str | None:
        """The name of the admin whose key it is, for the audit file; None when it is no admin's."""
        digest = digest_of(key)
        if compare_digest(digest, self._admin_digest):
            return OPERATOR
        found = self._valid(digest)
        return str(found) if found is not None and found.admin else None

    @property
    def has_admin(self) -> bool:
        """Whether some key is an admin's."""
        return bool(self._admin_digest) or any(key.admin for key in self._listed.values())

    def _valid(self, digest: str) -> Key | None:
        found = self._listed.get(digest)
        return None if found is None or found.has_expired(self._clock_s()) else found


def _shortest(keys: Iterable[Key]) -> dict[str, int]:
    """By owner; keys that have expired count too."""
    kept_s = dict[str, int]()
    for key in keys:
        if key.keep_s is not None:
            kept_s[key.owner] = min(key.keep_s, kept_s.get(key.owner, key.keep_s))
    return kept_s


def utc_now() -> datetime:
    """The time now, as a date in UTC."""
    return datetime.now(UTC).replace(microsecond=0)
