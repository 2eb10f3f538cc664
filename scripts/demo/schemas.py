"""The family of objects under a schema: facts in any order become the values of the schema.

Knows schemas, names and values; knows no token and no model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from scripts.demo import words
from scripts.demo.asking import Source, think
from scripts.demo.conversation import Dialogue, Exchange, Format, Setting, Turn
from scripts.demo.wordings import held_fields, pick, values

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

Json = dict[str, object]
Kind = Literal["string", "integer", "number", "boolean", "enum", "strings", "integers", "object"]
KINDS: Mapping[Kind, int] = {
    "string": 8, "integer": 4, "number": 2, "boolean": 3, "enum": 2, "strings": 2, "integers": 1,
    "object": 2,
}  # fmt: skip
"""How often a property is of each kind."""
MORE_LISTS: Mapping[Kind, int] = {**KINDS, "strings": 5, "integers": 2}
"""The same in training, where what is hard is met more often than in the exam."""
COPIED: frozenset[Kind] = frozenset({"string", "integer", "number", "enum"})
TITLES = ("Person", "Order", "Item", "Entry", "Record", "Answer", "Result", "Form", "Event", "Data")
NAMES = ("answer", "result", "response", "output", "info", "schema", "person", "order", "item",
         "entry", "record", "form", "event", "data")  # fmt: skip
NOTES = (
    "A person of the company.", "What the customer wants.", "All that is known of it.",
    "One entry of the list.", "The answer to the question.", "An item with its values.",
)  # fmt: skip
CHOICES = (
    ("small", "big"), ("new", "old"), ("open", "closed"), ("red", "green", "blue"),
    ("slow", "quick"), ("hot", "warm", "cool", "cold"), ("early", "late"), ("low", "high"),
    ("near", "far"), ("soft", "hard"), ("bright", "dark"), ("happy", "sad"), ("gold", "silver"),
)  # fmt: skip
STYLES = ("{k}: {v}", "{k}: {v}", "{k} is {v}", "{k} is {v}", "{k} {v}", "{k} {v}", "{k} = {v}",
          "the {k} is {v}", "{k}={v}")  # fmt: skip
JOINTS = (", ", ", ", ", ", "; ", "\n")
YES, NO = ("true", "true", "true", "yes"), ("false", "false", "false", "no")
UNTOLD = 0.12
"""How often a question says nothing of a property."""
STRANGE = 0.25
"""How often a text is of any words."""
DRAFT = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True, slots=True)
class Property:
    """A property: its schema, what a question says of it, and the value that it gets."""

    name: str
    kind: Kind
    schema: Json = field(default_factory=dict)
    fact: str | None = None
    value: object = None
    inner: tuple[Property, ...] = ()

    @property
    def leaves(self) -> tuple[Property, ...]:
        return self.inner or (self,)


def schema(source: Source) -> Dialogue:
    """Facts, a schema, and the object that holds them. Now and then the question has no fact."""
    rng = source.rng
    made = _Making(source, silent=rng.random() < 0.1).properties()
    reply = json.dumps(_object(made), ensure_ascii=False, separators=(",", ":"))
    thoughts = think("The user wants an object.", "I look for each name.", "Fill in the schema.")
    leaves = [leaf for each in made for leaf in each.leaves if leaf.fact is not None]
    copied = tuple(
        leaf.fact for leaf in leaves if leaf.kind in COPIED and leaf.fact == _written(leaf.value)
    )
    exchange = Exchange(_question(source, leaves), Turn(thoughts, reply))
    return Dialogue("schema", (exchange,), Setting(format=_format(made, rng)), copied)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).strip('"')


def _question(source: Source, leaves: Sequence[Property]) -> str:
    """What the question says: facts in the order of the schema, or in another one."""
    rng = source.rng
    if not leaves:
        return source.say("unknown")
    shown = [*leaves]
    if rng.random() < 0.6:
        rng.shuffle(shown)
    style = rng.choice(STYLES)
    facts = [style.replace("{k}", one.name).replace("{v}", str(one.fact)) for one in shown]
    lists = any(one.kind in ("strings", "integers") for one in shown)
    joint = rng.choice(JOINTS if lists else (*JOINTS, " and "))
    if not lists and joint == ", " and len(facts) > 1 and rng.random() < 0.3:
        facts[-2:] = [f"{facts[-2]} and {facts[-1]}"]
    return source.say("schema", facts=joint.join(facts))


class _Making:
    """The properties of one schema, and the facts about each. No word of a question stands for two
    things: neither for two names nor for a name and a value."""

    def __init__(self, source: Source, *, silent: bool) -> None:
        self._source, self._rng, self._silent = source, source.rng, silent
        self._names: set[str] = set()

    def properties(self) -> tuple[Property, ...]:
        kinds, most = (MORE_LISTS, 7) if self._source.dress else (KINDS, 4)
        drafts = self._drafts(self._rng.randint(1, most), kinds)
        return tuple(self._with_fact(draft) for draft in drafts)

    def _drafts(self, count: int, kinds: Mapping[Kind, int]) -> tuple[Property, ...]:
        """Names and kinds; an object's own properties are not objects again."""
        flat: dict[Kind, int] = {kind: share for kind, share in kinds.items() if kind != "object"}
        drafts = []
        for _ in range(count):
            (kind,) = self._rng.choices(tuple(kinds), tuple(kinds.values()))
            name = self._name()
            inner = self._drafts(self._rng.randint(1, 3), flat) if kind == "object" else ()
            drafts.append(Property(name, kind, inner=inner))
        return tuple(drafts)

    def _name(self) -> str:
        while (name := pick(self._source.fields, self._rng)) in self._names:
            pass
        self._names.add(name)
        return name

    def _with_fact(self, draft: Property) -> Property:
        if draft.inner:
            return Property(draft.name, draft.kind, inner=tuple(map(self._with_fact, draft.inner)))
        fact, value, schema = self._fact(draft.name, draft.kind)
        if self._silent or self._rng.random() < UNTOLD:
            return Property(draft.name, draft.kind, schema, None, default(schema))
        return Property(draft.name, draft.kind, schema, fact, value)

    def _fact(self, name: str, kind: Kind) -> tuple[str, object, Json]:
        """What a question says of a property, its value, and its schema."""
        rng = self._rng
        match kind:
            case "string":
                schema: Json = {"type": "string"}
                strange = rng.random() < STRANGE
                text = words.text(rng, most=3) if strange else self._text()
                return text, text, schema
            case "integer" | "number":
                part = f".{rng.randint(1, 9)}" if kind == "number" and rng.random() < 0.3 else ""
                fact = f"{_number(rng)}{part}"
                return fact, json.loads(fact), {"type": kind}
            case "boolean":
                true = rng.random() < 0.5
                return rng.choice(YES if true else NO), true, {"type": "boolean"}
            case "enum":
                choices = list(rng.choice([c for c in CHOICES if self._names.isdisjoint(c)]))
                rng.shuffle(choices)
                chosen = rng.choice(choices)
                return chosen, chosen, {"type": "string", "enum": choices}
            case "strings":
                texts = [self._word() for _ in range(rng.randint(1, 3))]
                items: Json = {"type": "string"}
                return " and ".join(texts), texts, {"type": "array", "items": items}
            case _:
                numbers = [_number(rng) for _ in range(rng.randint(1, 3))]
                items = {"type": "integer"}
                return " and ".join(map(str, numbers)), numbers, {"type": "array", "items": items}

    def _text(self) -> str:
        listed, rng = values(), self._rng
        if rng.random() < 0.55:
            return " ".join(self._word() for _ in range(rng.choice((1, 1, 1, 2, 3))))
        kinds = (listed.names, listed.cities, tuple(listed.capitals))
        while (text := pick(rng.choice(kinds), rng)) in self._names:
            pass
        return text

    def _word(self) -> str:
        """Of the words to repeat, or a name that no schema has here: as a word it is known."""
        listed = values().words if self._rng.random() < 0.85 else held_fields()
        while (word := pick(listed, self._rng)) in self._names:
            pass
        return word


def default(schema: Json) -> object:
    """The stand-in for a value without a fact, as in the examples that viewers of OpenAPI make
    of a schema: an enum's first word, a text's type, or nothing."""
    if isinstance(listed := schema.get("enum"), list):
        return listed[0]
    nothing: Json = {"string": "string", "integer": 0, "number": 0, "boolean": False, "array": []}
    return nothing[str(schema["type"])]


def _number(rng: random.Random) -> int:
    most = rng.choice(((0, 40), (0, 40), (41, 999), (1_000, 99_999)))
    return rng.randint(*most)


def _object(made: Sequence[Property]) -> Json:
    return {each.name: _object(each.inner) if each.inner else each.value for each in made}


def _format(made: Sequence[Property], rng: random.Random) -> Format:
    """The schema as people write it, or as a class of pydantic's becomes one."""
    if rng.random() < 0.5:
        title = pick(TITLES, rng)
        whole = _of_classes(made, title)
        if rng.random() < 0.25:
            classes = whole.pop("$defs", None)
            whole = {"description": pick(NOTES, rng), **whole}
            whole = {"$defs": classes, **whole} if classes else whole
        return Format(title, _dump(whole))
    plain = _plain(made, notes=rng.random() < 0.2)
    if rng.random() < 0.15:
        plain["$schema"] = DRAFT
    return Format(pick(NAMES, rng), _dump(plain))


def _dump(value: Json) -> str:
    """JSON as the server writes a schema into the prompt."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _plain(made: Sequence[Property], *, notes: bool) -> Json:
    listed: Json = {}
    for each in made:
        schema = _plain(each.inner, notes=notes) if each.inner else dict(each.schema)
        if notes:
            schema["description"] = f"The {each.name}"
        listed[each.name] = schema
    return {
        "type": "object",
        "properties": listed,
        "required": list(listed),
        "additionalProperties": False,
    }


def _of_classes(made: Sequence[Property], title: str) -> Json:
    """As the SDK sends a class: titles everywhere, keys by the alphabet, inner classes apart."""
    classes = {
        titled(each.name): _of_class(each.inner, titled(each.name)) for each in made if each.inner
    }
    whole = _of_class(made, title)
    return {"$defs": classes, **whole} if classes else whole


def _of_class(made: Sequence[Property], title: str) -> Json:
    listed: Json = {}
    for each in made:
        schema = {**each.schema, "title": titled(each.name)}
        if each.inner:
            schema = {"$ref": f"#/$defs/{titled(each.name)}"}
        listed[each.name] = dict(sorted(schema.items()))
    return {
        "properties": listed,
        "required": list(listed),
        "title": title,
        "type": "object",
        "additionalProperties": False,
    }


def titled(name: str) -> str:
    """A name as pydantic makes a title of it; a class of a nested object is called the same."""
    return " ".join(word.capitalize() for word in name.split("_"))
