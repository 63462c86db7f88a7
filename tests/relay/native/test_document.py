"""relay.native.document: the AsyncAPI document and what the code says and hears."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
from jsonschema_rs import Draft202012Validator, ValidationError

from relay.errors import NothingToSay
from relay.native.answers import answer
from relay.native.document import ANSWERS, FRAME, make_document
from relay.native.messages import CLIENT_MESSAGES, ClientMessage, read_message
from relay.speaking.events import Event
from tests.relay.conftest import make_audio

ROOT = Path(__file__).resolve().parents[3]


def validator(document: dict[str, Any], kind: str) -> Draft202012Validator:
    """Of the payload of a message of this type."""
    payload = {"$ref": f"#/components/messages/{kind}/payload", "components": document["components"]}
    return Draft202012Validator(payload)


def find_refs(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from find_refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from find_refs(value)


def test_the_document_is_what_the_code_gives() -> None:
    """`python -m relay.native > docs/asyncapi.json` was run after the last change."""
    made = subprocess.run([sys.executable, "-m", "relay.native"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs" / "asyncapi.json").read_text()


def test_every_reference_of_the_document_leads_somewhere() -> None:
    """Within the document itself."""
    document = make_document()
    refs = set(find_refs(document))
    assert len(refs) > 40
    for ref in refs:
        node: Any = document
        assert ref.startswith("#/")
        for step in ref[2:].split("/"):
            node = node[step]
        assert node


def test_each_side_of_the_protocol_is_an_operation() -> None:
    """AsyncAPI 3.0: what the relay receives are the clients' messages, what it sends are answers and frames."""
    document = make_document()
    assert document["asyncapi"] == "3.0.0"
    hear, tell = document["operations"]["hear"], document["operations"]["tell"]
    assert (hear["action"], tell["action"]) == ("receive", "send")
    assert [ref["$ref"].rsplit("/", 1)[1] for ref in hear["messages"]] == [
        "open",
        "resume",
        "text",
        "flush",
        "end",
        "cancel",
    ]
    assert len(tell["messages"]) == len(ANSWERS) + 1
    assert FRAME in document["channels"]["stream"]["messages"]
    assert set(get_args(ClientMessage)) == set(CLIENT_MESSAGES)


SAMPLES: dict[str, object] = {
    "str": "c",
    "int": 3,
    "float": 1.5,
    "UUID": uuid4(),
    "RelayError": NothingToSay(),
    "str | None": None,
    "bool": True,
    "tuple[int, int] | None": (1, 2),
    "float | None": None,
    "object": None,
}


@pytest.mark.parametrize("kind", get_args(Event))
def test_every_event_has_an_answer_that_fits_the_document(kind: type) -> None:
    """None can be added without one."""
    made = make_audio(b"") if kind.__name__ == "Audio" else kind(*[SAMPLES[str(f.type)] for f in fields(kind)])
    message = json.loads(answer(made).show())
    validator(make_document(), message["type"]).validate(message)


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        ({"type": "open", "context": "c", "voice": "v"}, True),
        ({"type": "open", "context": "c", "voice": "v", "format": "mp3_24000_64", "speed": 2}, True),
        ({"type": "resume", "context": "c", "token": "t", "sentence": 0, "chunk": -1}, True),
        ({"type": "text", "context": "c", "text": "Hello."}, True),
        ({"type": "text", "context": "c", "text": "x" * 10_001}, False),
        ({"type": "open", "context": "a b", "voice": "v"}, False),
        ({"type": "open", "context": "c"}, False),
        ({"type": "open", "context": "c", "voice": "v", "speed": 5}, False),
        ({"type": "resume", "context": "c", "token": "t", "sentence": -1, "chunk": 0}, False),
        ({"type": "end"}, False),
    ],
)
def test_what_fits_the_document_is_read_and_the_rest_is_refused(message: dict[str, Any], fits: bool) -> None:
    """The clients' half of the document."""
    made = validator(make_document(), message["type"])
    if fits:
        made.validate(message)
        read_message(json.dumps(message))
    else:
        with pytest.raises(ValidationError):
            made.validate(message)
