"""The settings of `apis/chat/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class ChatSettings(SettingGroup):
    """Chat completions."""

    chat_reasoning: Literal["both", "reasoning", "reasoning_content"] = Field(
        "both",
        description="Field of a chat completion that holds the reasoning; `both` writes it twice "
        "until the client sends one of them back.",
    )
