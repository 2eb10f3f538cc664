"""Harmony's control ids, and where they stand in the vocabulary.

Knows numbers; knows no file and no text.
"""

from __future__ import annotations

from typing import NamedTuple

VOCABULARY_SIZE = 201_088
"""Rows of a gpt-oss embedding."""
FIRST_CONTROL_ID = 199_998
"""Ordinary tokens fill the ids below it, control ids and spares the rest."""

FIRST_PADDING_ID = 200_019
"""From here on ids fill up the embedding: no tokeniser spells them."""


class Control(NamedTuple):
    """Harmony's control ids. A test compares each with openai-harmony."""

    startoftext: int = 199_998
    endoftext: int = 199_999
    return_: int = 200_002
    constrain: int = 200_003
    channel: int = 200_005
    start: int = 200_006
    end: int = 200_007
    message: int = 200_008
    call: int = 200_012


CONTROL = Control()
