"""Harmony's control ids and their range in the vocabulary.

Numbers only: no file and no text.
"""

from __future__ import annotations

from typing import NamedTuple

VOCABULARY_SIZE = 201_088
"""Rows of a gpt-oss embedding."""
FIRST_CONTROL_ID = 199_998
"""Ids below are ordinary tokens; ids from here on are control ids and reserved ones."""

FIRST_PADDING_ID = 200_019
"""Ids from here on pad the embedding; they have no text."""


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
