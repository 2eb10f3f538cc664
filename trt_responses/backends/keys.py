"""The keys that the settings name, where the folder that checks them is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import UsageError
from trt_responses.settings import LOOPBACK, PREFIX

if TYPE_CHECKING:
    from trt_responses.features.limits.settings import KeySettings
    from trt_responses.settings import Settings


def keys_in(settings: Settings) -> KeySettings | None:
    """The settings of keys; None where their folder is missing, so that there are none."""
    try:
        from trt_responses.features.limits.settings import KeySettings
    except ModuleNotFoundError:
        return None
    return KeySettings.of(settings)


def admin_key(settings: Settings) -> str | None:
    """The admin's key."""
    return None if (keys := keys_in(settings)) is None else keys.admin_key


def check_exposure(settings: Settings) -> None:
    """A server that others can reach needs keys, unless the operator insists."""
    if settings.host in LOOPBACK or settings.insecure:
        return
    keys = keys_in(settings)
    if keys is None or not (keys.keys_file is not None or keys.owners()):
        raise UsageError(
            f"{settings.option('host')} {settings.host}: without API keys, anyone who can reach "
            f"this address can use the server; set {PREFIX}KEYS_FILE or {PREFIX}API_KEYS, or "
            f"{PREFIX}INSECURE=1 to serve without keys."
        )
