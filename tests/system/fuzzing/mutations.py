"""What becomes of a valid message on its way to somebody who has to read it: other types, other depths, other bytes."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

from tests.system.fuzzing.texts import make_text

Message = dict[str, Any]
LARGE = "x" * 70_000
LONG_NUMBER = "9" * 5_000
"""Longer than Python reads into an integer."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "\x00",
    "\ud800",
    "x" * 300,
    [],
    {},
    [[[[]]]],
    {"a": {"b": {"c": None}}},
    "../../etc/passwd",
    "nobody",
    "00000000-0000-0000-0000-000000000000",
)
_NOT_JSON = (
    "",
    "{",
    "null",
    "[]",
    "0",
    '"text"',
    "{}",
    "NaN",
    "[" * 30_000,
    '{"a":' * 10_000,
    '{"a": ' + LONG_NUMBER + "}",
    '{"a": 1e99999}',
    '{"context": "\\ud800", "text": "\\udfff"}',
    "\ufeff{}",
    "\x00",
)


def mutate(random: Random, message: Message) -> Message:
    """The message, most often with something wrong in it."""
    changed = copy.deepcopy(message)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        _change(random, changed)
    return changed


def spell(random: Random, message: Message) -> str:
    """The message as JSON, or as what somebody takes for it; may hold halves of surrogate pairs."""
    drawn = random.random()
    if drawn < 0.08:
        return random.choice(_NOT_JSON)
    text = json.dumps(message)
    if drawn < 0.12:
        return text[: random.randrange(len(text))]
    if drawn < 0.15:
        return text[:-1] + ', "context_id": "again", "context": "again", "text": "again"}'
    if drawn < 0.17:
        return text + text
    if drawn < 0.19:
        place = random.randrange(len(text))
        return text[:place] + random.choice('\x00"\\{}[],:é\u2028') + text[place + 1 :]
    return text


def _change(random: Random, message: Message) -> None:
    place = message
    while True:
        inner = [value for value in place.values() if isinstance(value, dict) and value]
        if not inner or random.random() < 0.5:
            break
        place = random.choice(inner)
    name = random.choice(list(place) or ["text"])
    drawn = random.random()
    if drawn < 0.5:
        place[name] = copy.deepcopy(random.choice(VALUES))
    elif drawn < 0.65:
        place.pop(name, None)
    elif drawn < 0.8:
        place[name] = make_text(random)
    elif drawn < 0.9:
        place[name] = [place.get(name)] * random.choice((1, 50))
    else:
        place[random.choice(("type", "text", "context_id", "__proto__", "voice", "\ud800", "", LARGE[:200]))] = "x"
