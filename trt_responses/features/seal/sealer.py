"""Seals reasoning that a client carries for us, so that only its owner's requests open it.

AES-GCM with the owner as associated data. The text that a client holds is
`trtr1_` and base64url of key id, nonce and ciphertext. Knows keys and owners; knows no HTTP.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from trt_responses.errors import InvalidRequest, StartupError, UsageError, invalid_value
from trt_responses.features.references.digest import digest
from trt_responses.features.references.sealed import SealedCompaction
from trt_responses.features.seal.turn import (
    MAX_BYTES,
    OpenedTurns,
    SealedTurn,
    packed,
    swapped,
    unpacked,
)
from trt_responses.files import make_private
from trt_responses.wire import items as i

PREFIX = "trtr1_"
"""The beginning of a text that this server sealed; any other is left alone."""
KEY_BYTES, KEY_ID_BYTES, NONCE_BYTES = 32, 4, 12
PURPOSE = b"trt_responses reasoning 1\0"
COMPACTION_PREFIX, COMPACTION = "trtc1_", b"trt_responses compaction 1\0"
SIGNATURE, SIGNATURE_BYTES = b"trt_responses signature 1\0", 16
FAULTS = (binascii.Error, KeyError, ValueError, InvalidTag, zlib.error)
"""The errors of opening a sealed text that was changed, or is another's."""


class Sealer:
    """Seals with the first of its keys, and opens with each. `keys` is called once, when it is
    needed."""

    def __init__(
        self,
        keys: Callable[[], Sequence[bytes]],
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._keys = keys
        self._random = random
        self._ciphers: dict[bytes, AESGCM] = {}
        self._signing: list[bytes] = []

    def seal(self, turn: SealedTurn, owner: str) -> str:
        return PREFIX + self._sealed(packed(turn), _bound(owner))

    def open(self, text: str, owner: str, param: str) -> SealedTurn | None:
        """The turn in a sealed text; None when another server made the text. Raises an
        `InvalidRequest` when it is ours and cannot be opened."""
        if not text.startswith(PREFIX):
            return None
        try:
            return unpacked(self._opened(text[len(PREFIX) :], _bound(owner)))
        except FAULTS:
            raise InvalidRequest(
                "The encrypted content cannot be opened: it was changed, or sealed for another "
                "owner or with a key that this server does not have. Send the item without it.",
                param=param,
                code="invalid_encrypted_content",
            ) from None

    def seal_compaction(
        self, compaction: SealedCompaction, owner: str, model: str, vocabulary: str = ""
    ) -> str:
        bound = _bound(owner, _purpose(model, vocabulary))
        return COMPACTION_PREFIX + self._sealed(_compaction_bytes(compaction), bound)

    def open_compaction(
        self, text: str, owner: str, model: str, param: str, vocabulary: str = ""
    ) -> SealedCompaction:
        """The compaction in a sealed text. Raises an `InvalidRequest` for a text that this server
        did not seal for this owner, this model and its vocabulary."""
        bound = _bound(owner, _purpose(model, vocabulary))
        try:
            if not text.startswith(COMPACTION_PREFIX):
                raise ValueError
            return _compaction_of(self._opened(text[len(COMPACTION_PREFIX) :], bound))
        except FAULTS:
            raise InvalidRequest(
                "The compaction cannot be opened: it was changed, or made for another owner or "
                "model, by another server, or with a key that this one does not have. Send the "
                "conversation's items instead.",
                param=param,
                code="invalid_encrypted_content",
            ) from None

    def signature(self, signed: Sequence[str], owner: str) -> str:
        """A signature of texts that an owner was given, for a client to bring back unchanged."""
        self._loaded()
        return _signature(self._signing[0], signed, owner)

    def has_signed(self, signature: str, signed: Sequence[str], owner: str) -> bool:
        self._loaded()
        made = (_signature(key, signed, owner) for key in self._signing)
        return any(hmac.compare_digest(signature.encode(), one.encode()) for one in made)

    def _sealed(self, data: bytes, bound: bytes) -> str:
        key_id, cipher = next(iter(self._loaded().items()))
        nonce = self._random(NONCE_BYTES)
        sealed = cipher.encrypt(nonce, data, bound)
        return base64.urlsafe_b64encode(key_id + nonce + sealed).decode()

    def _opened(self, text: str, bound: bytes) -> bytes:
        raw = base64.b64decode(text, altchars=b"-_", validate=True)
        cipher = self._loaded()[raw[:KEY_ID_BYTES]]
        nonce, sealed = raw[KEY_ID_BYTES:][:NONCE_BYTES], raw[KEY_ID_BYTES + NONCE_BYTES :]
        return cipher.decrypt(nonce, sealed, bound)

    async def opened_turns(
        self,
        items: str | Sequence[i.SentItem],
        owner: str,
        pause: Callable[[], Awaitable[None]],
        places: Sequence[i.ItemPlace] | None = None,
        *,
        vocabulary: str = "",
        verifies: bool = False,
    ) -> OpenedTurns:
        """What a request's reasoning items carry. Each text is opened once, however often it is
        sent: a short one may hold a long turn. Other tasks run between two of them. Ids of another
        vocabulary are left out: such an item says its words alone. With `verifies`, an item whose
        words are not those that were sealed is refused."""
        turns: dict[int, SealedTurn] = {}
        opened: dict[str, SealedTurn | None] = {}
        for place, item in enumerate(() if isinstance(items, str) else items):
            if not isinstance(item, i.Reasoning) or not (item.encrypted_content or verifies):
                continue
            at = i.ItemPlace(f"input[{place}]") if places is None else places[place]
            param, text = f"{at.item}.{at.sealed}", item.encrypted_content or ""
            if text not in opened:
                opened[text] = self.open(text, owner, param)
                await pause()
            turn = opened[text]
            if verifies:
                _verify(item, turn, param)
            if turn is not None and turn.messages and turn.vocabulary == vocabulary:
                turns[place] = turn
        return OpenedTurns(turns)

    def _loaded(self) -> dict[bytes, AESGCM]:
        if not self._ciphers:
            self._signing = list(self._keys())
            self._ciphers = {_key_id(key): AESGCM(key) for key in self._signing}
        return self._ciphers


def _compaction_bytes(compaction: SealedCompaction) -> bytes:
    """The bytes of a compaction, the same on every machine."""
    head = orjson.dumps([compaction.date, dict(compaction.calls), compaction.messages])
    return zlib.compress(b"%b\n%b" % (head, swapped(compaction.ids)), 6)


def _compaction_of(data: bytes) -> SealedCompaction:
    """The compaction in the bytes, which are authenticated and therefore not checked."""
    head, _, ids = zlib.decompressobj().decompress(data, MAX_BYTES).partition(b"\n")
    date, calls, *places = orjson.loads(head)  # older items do not say it
    return SealedCompaction(date, calls, swapped(ids), *places)


def _verify(item: i.Reasoning, turn: SealedTurn | None, param: str) -> None:
    """Refuse an item whose words are not those of its seal; one without words passes."""
    if turn is not None and (not item.content or not turn.messages):
        return
    if turn is None or turn.messages[0].digest != digest(item):
        raise invalid_value(
            param,
            "it does not belong to this thought. Send thoughts back as they came, or leave them "
            "out",
            code="invalid_encrypted_content",
        )


def _signature(key: bytes, signed: Sequence[str], owner: str) -> str:
    texts = [text.encode("utf-8", "surrogatepass") for text in (owner, *signed)]
    sized = b"".join(len(text).to_bytes(8, "little") + text for text in texts)
    made = hmac.new(key, SIGNATURE + sized, hashlib.sha256).digest()[:SIGNATURE_BYTES]
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"key id\0" + key).digest()[:KEY_ID_BYTES]


def _bound(owner: str, purpose: bytes = PURPOSE) -> bytes:
    return purpose + owner.encode("utf-8", "surrogatepass")


def _purpose(model: str, vocabulary: str) -> bytes:
    """The associated data of a compaction: a model whose ids mean other things cannot open it."""
    return COMPACTION + model.encode() + b"\0" + vocabulary.encode()


def shared_keys(texts: Sequence[str]) -> list[bytes]:
    """The keys in a setting, each base64 of 32 bytes."""
    keys = []
    for place, text in enumerate(texts, 1):
        try:
            key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise UsageError(
                f"TRT_RESPONSES_SEAL_KEYS: entry {place} is not base64 of {KEY_BYTES} bytes; "
                "make one with `openssl rand -base64 32`."
            )
        keys.append(key)
    return keys


def key_of(path: Path) -> bytes:
    """The key in a file that only its owner can read. A missing file is made."""
    if not path.exists():
        make_private(path.parent)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another server of this directory was quicker
            os.link(fresh, path)
        fresh.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    if path.stat().st_mode & 0o077:
        raise StartupError(f"{path} can be read by others: its mode must be 0600.")
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise StartupError(f"{path} does not hold a key of {KEY_BYTES} bytes: remove it.")
    return key
