"""Keys that encrypt what a store keeps: read from a file or from a command, and read again.

A sealed text is a mark, the id of its key, a nonce and AES-GCM's ciphertext. The nonce is a keyed
hash of the text and what it is bound to, so equal texts of one owner are equal at rest and are
stored once, and no nonce serves two texts.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trt_responses.errors import ApiError, StartupError
from trt_responses.settings import PREFIX

MARK = b"\xe1"
"""The first byte of a sealed text, and of nothing that is stored in clear."""
KEY_BYTES, ID_BYTES, NONCE_BYTES, TAG_BYTES = 32, 4, 12, 16
COMMAND_S = 30.0
AGAIN_S = 5.0
"""Seconds between two readings of the keys because of a text whose key is missing."""
CLEAR = "clear"
SETTING = f"{PREFIX}STORE_KEYS"


class Cipher:
    """One key."""

    def __init__(self, secret: bytes) -> None:
        def derived(purpose: bytes, size: int) -> bytes:
            return hashlib.blake2b(secret, digest_size=size, person=purpose).digest()

        self.id = derived(b"trt id", ID_BYTES)
        self._nonces = derived(b"trt nonces", KEY_BYTES)
        self._cipher = AESGCM(derived(b"trt store", KEY_BYTES))
        self._head = MARK + self.id

    def seal(self, text: bytes, bound: bytes) -> bytes:
        hashed = hashlib.blake2b(key=self._nonces, digest_size=NONCE_BYTES)
        hashed.update(b"%d %b" % (len(bound), bound))
        hashed.update(text)
        nonce = hashed.digest()
        return self._head + nonce + self._cipher.encrypt(nonce, text, bound)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """The text. Raises an `InvalidTag` if anything was changed."""
        nonce, at = sealed[1 + ID_BYTES :][:NONCE_BYTES], 1 + ID_BYTES + NONCE_BYTES
        if len(nonce) < NONCE_BYTES:
            raise InvalidTag
        return self._cipher.decrypt(nonce, sealed[at:], bound)

    def has_sealed(self, text: bytes) -> bool:
        return text.startswith(self._head)


class StoreKeys:
    """The first key seals, or nothing does if the first line is `clear`; each opens."""

    def __init__(
        self, read: Callable[[], bytes], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._read_s = clock_s()
        self._hold(read())

    def _hold(self, text: bytes) -> None:
        lines = parsed(text)
        self._ciphers = {cipher.id: cipher for cipher in lines if cipher is not None}
        self.newest = lines[0]
        """None: what is stored from now on is stored in clear."""
        self.reads_clear = None in lines

    def look(self) -> None:
        """Read the keys again. Raises a `StartupError`, and keeps them, if they cannot be used."""
        try:
            self._hold(self._read())
        finally:
            self._read_s = self._clock_s()

    def open(self, sealed: bytes, bound: bytes, name: str) -> bytes:
        """The text of a sealed one. Raises an `ApiError` that names what cannot be read."""
        key_id = sealed[1 : 1 + ID_BYTES]
        cipher = self._ciphers.get(key_id) or self.find(key_id)
        if cipher is None:
            raise ApiError(
                f"'{name}' is encrypted with the key {key_id.hex()}, which this server does not "
                f"have: add it to {SETTING}."
            )
        try:
            return cipher.open(sealed, bound)
        except InvalidTag:
            raise tampered(name) from None

    def of(self, sealed: bytes) -> Cipher | None:
        """The key of a sealed text; None for one in clear, or of a key that is missing."""
        return self._ciphers.get(sealed[1 : 1 + ID_BYTES]) if sealed[:1] == MARK else None

    async def find_all(self, texts: Iterable[bytes]) -> None:
        """Find missing keys of sealed texts beside the loop: a command may print them slowly."""
        for key_id in {text[1 : 1 + ID_BYTES] for text in texts if text[:1] == MARK}:
            if key_id not in self._ciphers:
                await asyncio.to_thread(self.find, key_id)

    def find(self, key_id: bytes) -> Cipher | None:
        """A key, also one that another server uses already."""
        with self._lock:
            if key_id not in self._ciphers and self._clock_s() >= self._read_s + AGAIN_S:
                try:
                    self.look()
                except StartupError as error:
                    raise ApiError(str(error)) from None
        return self._ciphers.get(key_id)

    def check_clear(self, name: str) -> None:
        """Refuse a text in clear, unless the keys allow it: it could be planted."""
        if not self.reads_clear:
            raise ApiError(
                f"'{name}' is not encrypted. If it was stored before encryption began, add the "
                f"line `{CLEAR}` to {SETTING} and run `trt-responses encryption rewrite`."
            )


def mark_of(sealed: bytes) -> bytes:
    """The nonce and the tag of a sealed text, which no other text has."""
    return sealed[1 + ID_BYTES :][:NONCE_BYTES] + sealed[-TAG_BYTES:]


def tampered(name: str) -> ApiError:
    """The error for what does not authenticate."""
    return ApiError(f"'{name}' was changed in the store and cannot be decrypted.")


def parsed(text: bytes) -> list[Cipher | None]:
    """The keys of a text, a line each; None for `clear`."""
    found = list[Cipher | None]()
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if not (word := line.partition("#")[0].strip()):
            continue
        try:
            secret = b"" if word == CLEAR else base64.b64decode(word, validate=True)
        except ValueError:
            secret = b""
        if word != CLEAR and len(secret) != KEY_BYTES:
            raise StartupError(
                f"{SETTING}: line {number} is neither base64 of 32 bytes nor `{CLEAR}`. "
                "`trt-responses encryption key` makes a key."
            )
        found.append(None if word == CLEAR else Cipher(secret))
    if not found:
        raise StartupError(f"{SETTING}: no key. `trt-responses encryption key` makes one.")
    return found


def reader(place: str, wait_s: float = COMMAND_S) -> Callable[[], bytes]:
    """Reads the file, or runs the command after `|`, which may take so many seconds."""
    command = place.removeprefix("|").strip() if place.startswith("|") else None
    return (lambda: _printed(command, wait_s)) if command else (lambda: _text(Path(place)))


def _text(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe would hold its reader for ever
            raise StartupError(f"{SETTING} {path}: is not a file; `|command` reads a command.")
        return path.read_bytes()
    except OSError as error:
        raise StartupError(f"{SETTING} {path}: cannot be read ({error.strerror}).") from None


def _printed(command: str, wait_s: float) -> bytes:
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            command, shell=True, stdout=pipe, stderr=pipe, start_new_session=True
        ) as process:
            try:
                printed, notes = process.communicate(timeout=wait_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartupError(f"{SETTING}: the command failed ({type(error).__name__}).") from None
    if process.returncode:
        last = notes.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise StartupError(f"{SETTING}: the command exited {process.returncode} ({last[0]:.200}).")
    return printed
