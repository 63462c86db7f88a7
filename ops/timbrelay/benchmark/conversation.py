"""What voice agents say, and when: plain values, the same for the same seed.

The text of a turn comes token by token, as a language model writes it; the person listens, thinks and answers, and
sometimes does not let the agent finish.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from relay.speaking.sentences import SentenceCutter

REPLIES = (
    "Sure, I can help with that. What is the number on your last invoice?",
    "The train to the coast leaves at half past seven, from platform four.",
    "Thanks, I have found your order. It left our warehouse yesterday and should be with you by Friday.",
    "I am sorry to hear that. Let me see what went wrong, it will only take a moment.",
    "Your appointment is on Tuesday at ten. Would you like to keep it, or shall we find another day?",
    "Yes, we are open until eight in the evening.",
    "The old clock in the hall has stopped again, so please do not trust it.",
    "I have sent you a message with the address. The second door on the left is the library.",
    "That is a good question. Rain is expected in the north by the evening, but the coast will stay dry.",
    "One moment, please.",
    "We have two rooms left. One looks over the garden, and the other is a little larger.",
    "All right, I have written that down. Is there anything else I can do for you?",
    "No problem at all. I have moved your table to a quarter past nine.",
    "The museum opens at eleven on Sundays, and children under twelve get in free.",
    "Please bring two lemons and a loaf of bread. Everything else is in the kitchen already.",
    "It was a pleasure to talk to you. Have a good evening.",
)
TOKEN_S = 0.025
"""Forty tokens a second, as large models write for their callers; each pause is between half and one and a half."""
THINK_S = (3.0, 8.0)
"""How long a person takes to answer, with what the language model then needs to begin."""
BARGE_IN_SHARE = 0.2
BARGE_IN_S = (0.5, 2.5)
"""How much of the answer a person hears who does not let the agent finish."""
RETORT_S = (0.8, 2.0)
"""How soon the agent speaks again after it was interrupted."""

_TOKEN = re.compile(r"\s*\S{1,6}")


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of an agent."""

    tokens: tuple[str, ...]
    pauses_s: tuple[float, ...]
    """How long the model takes for each token."""

    completing: tuple[int, ...]
    """For each sentence that the relay will cut, the token that completes it; the end of the text for the last."""

    barge_in_s: float | None
    """After how much of hearing it the person interrupts; None: never."""

    think_s: float
    """How long after it has ended the next turn begins."""


def plan_turn(chance: random.Random) -> Turn:
    """The next turn of an agent with this source of chance."""
    text = chance.choice(REPLIES)
    tokens = split_tokens(text)
    interrupted = chance.random() < BARGE_IN_SHARE
    return Turn(
        tokens,
        tuple(chance.uniform(0.5, 1.5) * TOKEN_S for _ in tokens),
        find_completing(tokens),
        chance.uniform(*BARGE_IN_S) if interrupted else None,
        chance.uniform(*(RETORT_S if interrupted else THINK_S)),
    )


def split_tokens(text: str) -> tuple[str, ...]:
    """Pieces of up to six letters with the white space before them; together they are the text."""
    return tuple(_TOKEN.findall(text))


def find_completing(tokens: tuple[str, ...]) -> tuple[int, ...]:
    """For each sentence the index of the token with which the relay's own cutter has it; `len(tokens)`: the end."""
    cutter, found = SentenceCutter(), []
    for index, token in enumerate(tokens):
        found += [index] * len(cutter.push(token))
    return (*found, *[len(tokens)] * len(cutter.end()))


def cut_replies() -> list[str]:
    """Every sentence that the relay makes of all the replies."""
    pieces: list[str] = []
    for reply in REPLIES:
        cutter = SentenceCutter()
        pieces += [sentence.text for sentence in [*cutter.push(reply), *cutter.end()]]
    return pieces
