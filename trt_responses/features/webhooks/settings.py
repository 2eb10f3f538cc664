"""The settings of `features/webhooks/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SecretText, SettingGroup, Url


class WebhookSettings(SettingGroup):
    """Where webhooks go."""

    webhook_url: Url | None = Field(
        None, description="URL that gets a signed event when a batch has ended (default: none)."
    )
    webhook_secret: SecretText = Field(
        None, description="Secret that signs these events: any text, or base64 after `whsec_`."
    )
