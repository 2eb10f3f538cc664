"""`trt-responses encryption`: makes keys, and rewrites the records that older keys encrypted.

Running responses and the events of background streams keep the key with which they began: stores
append events and never replace them, and a server that takes a response over continues with its
key. An old key goes when these have expired (`STORE_AGE_S`), or when their responses are deleted.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import TYPE_CHECKING

from trt_responses.backends.dialects import spelled
from trt_responses.backends.stores import store_of
from trt_responses.cli.commands import add_command, add_group
from trt_responses.errors import ApiError, StartupError, UsageError
from trt_responses.features.encryption.install import encrypted
from trt_responses.features.encryption.keys import KEY_BYTES, SETTING
from trt_responses.features.encryption.witness import WITNESS
from trt_responses.serve.server import lasting
from trt_responses.settings import Settings
from trt_responses.store import Record

if TYPE_CHECKING:
    import argparse

    from trt_responses.cli.commands import Commands
    from trt_responses.features.encryption.store import EncryptedStore
    from trt_responses.features.encryption.witness import WitnessedStore

TRIES = 5


def add(parents: Commands, name: str, text: str) -> None:
    """Add the command `encryption` and its subcommands."""
    commands = add_group(parents, name, text, example="encryption key")
    text = "make a key of the store and print it"
    add_command(commands, "key", text, _key, example="encryption key")
    text = "encrypt all records with the first of the keys, while servers run"
    add_command(commands, "rewrite", text, _rewrite, example="encryption rewrite")


def _key(options: argparse.Namespace) -> int:
    print(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())
    return 0


def _rewrite(options: argparse.Namespace) -> int:
    settings = Settings.from_environment()
    store = encrypted(settings, store_of(lasting(settings), spelled()))
    if store is None:
        raise UsageError(f"No keys: set {SETTING}.")
    rewritten, left = asyncio.run(_all(store))
    print(f"rewrote {rewritten} records, {left} left")
    return 1 if left else 0


async def _all(store: WitnessedStore) -> tuple[int, int]:
    await store.start()
    try:
        rewritten = left = 0
        for owner in await store.inner.owners():
            for name in await store.inner.ids_of(owner):
                done = await rewrite(store, name, owner)
                rewritten += done is True
                left += done is None
        if not left and not store.keys.newest:
            await store.inner.delete(WITNESS.id, WITNESS.owner)
        return rewritten, left
    except ApiError as error:
        raise StartupError(f"{error.message} Nothing after it was rewritten.") from None
    finally:
        await store.inner.stop()


async def rewrite(store: EncryptedStore, name: str, owner: str) -> bool | None:
    """Encrypt one record anew. False if there is nothing to do; None if it changes all the time."""
    for _ in range(TRIES):
        if await store.is_newest(name, owner):
            return False
        found = await store.get(name, owner)
        if isinstance(found, Record) and await store.replace(found):
            return True
    return None
