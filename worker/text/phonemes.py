"""Text of one sentence piece to phoneme ids: the alphabet of the synthesizer's input.

The reading of words, numbers and abbreviations is `hibari.g2p`'s; the ids are those of its vocabulary, so
speech rendered by that teacher and speech asked for in service use the same symbols.
"""

import functools
import hashlib
import importlib.util
import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

PAD = 0
"""The id that frames every utterance; it is no symbol of the alphabet."""

_SPACES = re.compile(r" {2,}")
_SILENT = frozenset(';:,.!?—…"()“”ˈˌː ')


class _Reader(Protocol):
    def __call__(self, text: str) -> str: ...


def _read_alphabet() -> Mapping[str, int]:
    spec = importlib.util.find_spec("hibari")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the grapheme-to-phoneme package 'hibari-tts' is not installed")
    table = json.loads((Path(spec.origin).parent / "assets" / "vocab.json").read_text(encoding="utf-8"))
    return MappingProxyType({str(symbol): int(number) for symbol, number in table.items()})


SYMBOLS: Mapping[str, int] = _read_alphabet()
"""Phoneme, stress mark, punctuation mark or space -> its id (1 and up, with gaps)."""

SYMBOL_COUNT = max(SYMBOLS.values()) + 1
"""Rows of an embedding table that holds every id and `PAD`."""


def symbols_sha256() -> str:
    """The SHA-256 of the canonical JSON (sorted keys, no spaces, UTF-8) of `SYMBOLS`."""
    canonical = json.dumps(dict(SYMBOLS), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@functools.cache
def _reader() -> _Reader:
    from hibari.g2p import G2P

    reader: _Reader = G2P()
    return reader


def _plain(text: str) -> str:
    """The text in the forms the dictionaries know: compatibility characters such as a superscript digit or a full-width
    letter as their plain ones, decimal digits of any script as 0-9, without lone surrogates."""
    folded = "".join(char if char == "…" else unicodedata.normalize("NFKC", char) for char in text)
    digits = (str(unicodedata.decimal(char)) if char.isdecimal() else char for char in folded)
    return "".join(digits).encode("utf-8", "ignore").decode()


def _read(text: str) -> str:
    try:
        return _reader()(text)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        words = text.split()
        # One word the dictionary stumbles over must not silence the others.
        return " ".join(_read(word) for word in words) if len(words) > 1 else ""


class Phonemizer:
    """American English phonemes; the dictionaries load at the first use and are shared by every instance."""

    def phonemes(self, text: str) -> str:
        """The phoneme string of `text`, limited to the alphabet, with single spaces."""
        known = "".join(symbol for symbol in _read(_plain(text)) if symbol in SYMBOLS)
        return _SPACES.sub(" ", known).strip()

    def ids(self, text: str) -> list[int]:
        """The ids of `text` between two pads, or an empty list when nothing in it can be spoken."""
        phonemes = self.phonemes(text)
        if all(symbol in _SILENT for symbol in phonemes):
            return []
        return [PAD, *(SYMBOLS[symbol] for symbol in phonemes), PAD]
