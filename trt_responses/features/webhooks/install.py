"""Signed events for the operator's own server."""

from __future__ import annotations

from trt_responses.features.webhooks.settings import WebhookSettings
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    own = WebhookSettings.of(server.settings)
    if own.webhook_url is None:
        return
    from trt_responses.features.webhooks.webhooks import Webhooks, key_of

    webhooks = Webhooks(own.webhook_url, key_of(own.webhook_secret), server.sleep)
    server.provide(webhooks)
    server.lives.append(webhooks.life)
