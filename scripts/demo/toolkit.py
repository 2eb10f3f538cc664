"""The functions that clients declare: their names, parameters and what they answer.

Knows nothing of wordings and of the model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts.demo.conversation import Tool
from scripts.demo.wordings import pick, values

if TYPE_CHECKING:
    import random

NAMES = {
    "weather": ("get_weather",) * 4 + ("get_current_weather", "fetch_weather", "weather"),
    "time": ("get_time",) * 4 + ("get_current_time", "fetch_time", "time"),
    "status": ("get_server_status",) * 3 + ("server_status", "get_status"),
    "files": ("list_files",) * 3 + ("get_files", "show_files"),
}
DESCRIPTIONS = {
    "weather": (
        "Get the weather",
        "Get the current weather for a city",
        "Current weather in a city",
        "Returns the weather of a place",
        "Get current temperature for a given location.",
        "Get the weather in a location",
        "Weather lookup",
        "Look up the weather",
    ),
    "time": (
        "Get the time",
        "Get the current time in a city",
        "Current local time in a city",
        "Returns the local time of a place",
        "Get the time in a location",
        "Time lookup",
    ),
    "status": (
        "Get the status of the server",
        "Returns the server status",
        "Check the server",
        "Is the server up?",
    ),
    "files": (
        "List the files",
        "Returns the names of all files",
        "List files in the folder",
        "Show the files in the directory",
    ),
}
PLACES = ("city",) * 4 + ("location",) * 3 + ("place",)
PLACE_NOTES = (
    "",
    "",
    "The city",
    "Name of the city",
    "City name",
    "The location",
    "City and country e.g. Bogotá, Colombia",
    "The city, e.g. San Francisco",
)
OTHERS = (
    Tool("send_email", "Send an email", '{"type":"object","properties":{"to":{"type":"string"},'
         '"body":{"type":"string"}},"required":["to","body"]}'),
    Tool("search", "Search the web", '{"type":"object","properties":{"query":{"type":"string"}},'
         '"required":["query"]}'),
    Tool("play_music", "Play a song", '{"type":"object","properties":{"song":{"type":"string"}},'
         '"required":["song"]}'),
    Tool("add_note", "Store a note", '{"type":"object","properties":{"text":{"type":"string"}},'
         '"required":["text"]}'),
    Tool("set_alarm", "Set an alarm", '{"type":"object","properties":{"hour":{"type":"number"},'
         '"minute":{"type":"number"}},"required":["hour","minute"]}'),
    Tool("shutdown", "Stop the machine"),
    Tool("read_file", "Read a file", '{"type":"object","properties":{"path":{"type":"string",'
         '"description":"Path of the file"}},"required":["path"]}'),
)  # fmt: skip
EMPTY = (None, '{"type":"object","properties":{}}')
UNITS: tuple[dict[str, object], ...] = (
    {"type": "string", "enum": ["celsius", "fahrenheit"]},
    {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit of temperature"},
)
SKIES = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear", "stormy")


@dataclass(frozen=True, slots=True)
class Kit:
    """The function that a question needs, the name of its place parameter, and its neighbours."""

    tool: Tool
    place: str | None = None
    units: bool = False

    def arguments(self, city: str | None = None) -> str:
        given: dict[str, str] = {}
        if self.place is not None and city is not None:
            given[self.place] = city
        if self.units:
            given["units"] = "celsius"
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def kit(kind: str, rng: random.Random, *, place: str | None = None) -> Kit:
    """A declaration of one of the known kinds, worded anew; `place` is what it calls a place."""
    name, description = pick(NAMES[kind], rng), pick(DESCRIPTIONS[kind], rng)
    if kind in ("status", "files"):
        return Kit(Tool(name, description, rng.choice(EMPTY)))
    place, note = place or pick(PLACES, rng), pick(PLACE_NOTES, rng)
    properties: dict[str, object] = {
        place: {"type": "string"} | ({"description": note} if note else {})
    }
    units = kind == "weather" and rng.random() < 0.15
    optional = kind == "weather" and not units and rng.random() < 0.15
    if units or optional:
        properties["units" if units else "unit"] = rng.choice(UNITS)
    required = [place, "units"] if units else [place]
    schema = {"type": "object", "properties": properties, "required": required}
    return Kit(Tool(name, description, json.dumps(schema, ensure_ascii=False)), place, units)


def function_names() -> tuple[str, ...]:
    named = (name for names in NAMES.values() for name in names)
    return (*named, *(tool.name for tool in OTHERS))


def parameter_names() -> tuple[str, ...]:
    """Those that say which: what is common to many functions, like units, is left out."""
    schemas = [json.loads(tool.parameters or "{}") for tool in OTHERS]
    return (*PLACES, *(name for schema in schemas for name in schema.get("properties", {})))


def others(rng: random.Random, most: int = 2) -> list[Tool]:
    return rng.sample(OTHERS, rng.choice((0, 0, 0, *range(1, most + 1))))


def shuffled(tools: list[Tool], rng: random.Random) -> tuple[Tool, ...]:
    rng.shuffle(tools)
    return tuple(tools)


def loose_text(rng: random.Random) -> str:
    """An answer in no format: words and numbers that can only be quoted."""
    words = [pick(values().words, rng) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.5:
        words.insert(rng.randrange(len(words) + 1), str(rng.randint(0, 40)))
    return " ".join(words)


def weather_report(rng: random.Random) -> tuple[str, str]:
    """What a weather function answers, and how the model words it; {city} stays open."""
    if rng.random() < 0.5:
        return plain_weather(rng)
    degrees, sky = rng.randint(0, 40), pick(SKIES, rng)
    text = rng.choice(
        (f"{sky}, {degrees} degrees", f"{degrees}°C and {sky}", f"{sky} {degrees} C",
         f"{degrees} degrees and {sky}", f"{sky}", f"{degrees}°C", loose_text(rng), loose_text(rng),
         dump({"report": loose_text(rng)}, rng), dump({"error": loose_text(rng)}, rng))
    )  # fmt: skip
    return text, f"The weather in {{city}}: {text}"


def plain_weather(rng: random.Random) -> tuple[str, str]:
    degrees, sky = rng.randint(0, 40), pick(SKIES, rng)
    keys = (pick(("temperature", "temp", "temp_c", "degrees"), rng),
            pick(("condition", "conditions", "sky", "weather"), rng))  # fmt: skip
    pairs: list[tuple[str, object]] = [(keys[0], degrees), (keys[1], sky)]
    rng.shuffle(pairs)
    return dump(dict(pairs), rng), f"It is {sky} and {degrees} degrees in {{city}}."


def time_report(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.5:
        return plain_time(rng)
    clock = _clock(rng)
    text = rng.choice((clock, f"{clock} today", loose_text(rng), dump({"clock": clock}, rng)))
    return text, f"The time in {{city}}: {text}"


def plain_time(rng: random.Random) -> tuple[str, str]:
    clock = _clock(rng)
    return dump({"time": clock}, rng), f"It is {clock} in {{city}}."


def _clock(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def status_report(rng: random.Random) -> tuple[str, str]:
    state = pick(("up", "down", "ok", "running", "healthy", "stopped", "busy", "online"), rng)
    text = rng.choice(
        (state, dump({"status": state}, rng), dump({"server": state}, rng), loose_text(rng))
    )
    return text, f"The server status: {text}"


def files_report(rng: random.Random) -> tuple[str, str]:
    names = [f"{pick(values().words, rng)}.{pick(('txt', 'py', 'md'), rng)}" for _ in range(3)]
    text = rng.choice((dump(names, rng), ", ".join(names), " ".join(names[:2]), loose_text(rng)))
    return text, f"The files: {text}"


REPORTS = {
    "weather": weather_report,
    "time": time_report,
    "status": status_report,
    "files": files_report,
}


PLAIN_REPORTS = {"weather": plain_weather, "time": plain_time}
"""Answers in the usual keys, which the model has words for."""


def dump(value: object, rng: random.Random) -> str:
    """JSON as servers write it, with blanks or without."""
    separators = rng.choice(((",", ":"), (", ", ": ")))
    return json.dumps(value, ensure_ascii=False, separators=separators)
