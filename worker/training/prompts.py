"""What the teacher is asked to say: pieces of fewer than ten words, as the product cuts its text."""

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

WORD_LIMIT = 9
_CLAUSES = re.compile(r"(?<=[.,;:!?])\s+")
_ENDS = ("", ".", ".", ".", ",", "?", "!")

_PHRASES = (
    "Yes.", "No.", "Okay.", "Hello!", "Hi there.", "Thank you.", "Thanks a lot!", "Sure.", "Of course.", "Sorry?",
    "Good morning.", "Good evening, everyone.", "How are you today?", "What time is it?", "Where do you live?",
    "Could you say that again, please?", "I'm not sure about that.", "That's all right.", "Let me check that for you.",
    "One moment, please.", "Is there anything else?", "I don't think so.", "We'll see you tomorrow.", "Are you ready?",
    "Why not?", "Who is calling?", "Can I help you?", "Would you like some tea?", "It's raining again.", "Wait!",
    "Please hold the line.", "Your order has been shipped.", "The meeting was moved to Friday.", "Goodbye.", "Stop!",
    "Did you get my message?", "I'd love to join you.", "They're already here.", "Oh, I see.", "Well, maybe.",
    "Right.", "Exactly!", "Really?", "Never mind.", "Come in.", "Look out!", "Do you know the way?", "Let's go.",
    "You can't be serious!", "I've never heard of it.", "When does the next bus leave?", "Which one is yours?",
)  # fmt: skip
_UNITS = (
    "dollars", "people", "miles", "minutes", "percent", "pages", "rooms", "hours", "degrees", "kilograms", "users",
)  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def cut_text(text: str, limit: int = WORD_LIMIT) -> list[str]:
    """Pieces of at most `limit` words: at clause punctuation first, then in near-equal parts of what is longer."""
    pieces: list[str] = []
    for clause in _CLAUSES.split(text.strip()):
        words = clause.split()
        parts = -(-len(words) // limit)
        bounds = [round(len(words) * part / parts) for part in range(parts + 1)] if parts else [0]
        pieces += [" ".join(words[low:high]) for low, high in pairwise(bounds)]
    return [piece for piece in pieces if piece]


@dataclass(frozen=True, slots=True)
class Prompts:
    """A source of training texts.

    Half are pieces of running text, the rest short runs of words, everyday phrases, numbers and letters,
    because a service that speaks in pieces says "Yes." more often than a book does.
    """

    pieces: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Prompts":
        """One sentence a line; raises OSError when the file cannot be read."""
        lines = path.read_text(encoding="utf-8").splitlines()
        return cls(tuple(piece for line in lines for piece in cut_text(line)))

    def draw(self, rng: np.random.Generator) -> str:
        """One text."""
        kind = rng.random()
        if kind < 0.55:
            return self._piece(rng)
        if kind < 0.78:
            return self._run(rng)
        if kind < 0.88:
            return _PHRASES[rng.integers(len(_PHRASES))]
        if kind < 0.98:
            return _number(rng)
        return chr(ord("A") + int(rng.integers(26))) + _ENDS[rng.integers(len(_ENDS))]

    def _piece(self, rng: np.random.Generator) -> str:
        piece = self.pieces[rng.integers(len(self.pieces))]
        if rng.random() < 0.2:
            return piece.rstrip(".,;:!?") + _ENDS[rng.integers(len(_ENDS))]
        return piece

    def _run(self, rng: np.random.Generator) -> str:
        words = self.pieces[rng.integers(len(self.pieces))].split()
        size = int(rng.integers(1, 5))
        start = int(rng.integers(max(1, len(words) - size + 1)))
        return " ".join(words[start : start + size]).rstrip(".,;:!?") + _ENDS[rng.integers(len(_ENDS))]


def _number(rng: np.random.Generator) -> str:
    value = int(10 ** rng.uniform(0.3, 5.5))
    day, hour, minute, year = rng.integers(1, 29), rng.integers(1, 13), rng.integers(10, 60), rng.integers(1700, 2040)
    unit, month = _UNITS[rng.integers(len(_UNITS))], _MONTHS[rng.integers(12)]
    forms = (
        f"{value} {unit}.", f"It was {year}.", f"At {hour}:{minute}", f"{month} {day}, {year}.", f"${value % 1000}.",
        f"About {value % 100} {unit},", f"{value % 10} {value // 10 % 10} {day % 10}", f"{hour}.{minute} {unit}",
        f"Is it {hour} or {day}?", f"{value % 100}%", f"Room {value % 1000}.", f"{day}",
    )  # fmt: skip
    return forms[rng.integers(len(forms))]
