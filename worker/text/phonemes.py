"""Text of one sentence piece to phoneme ids: the alphabet of the synthesizer's input.

The reading of words, numbers and abbreviations is `hibari.g2p`'s. Our own rules come before it, for what it misreads,
and the user's lexicon before its dictionaries. The ids are those of its vocabulary, so speech rendered by that teacher
and speech asked for in service use the same symbols.
"""

import copy
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from worker.text.characters import MARK
from worker.text.letters import LETTER_A
from worker.text.lexicon import Lexicon
from worker.text.normalise import normalise_piece
from worker.text.pronunciation import add_stress
from worker.text.reading import Reading, Said, cut_pieces, fold_words, span_words
from worker.text.tracing import trace_words

PAD = 0
"""The id that frames every utterance; it is no symbol of the alphabet."""

_CERTAIN = 5
_SIXTEEN = "àáâãäåæçèéêëìíîï"
_A_NAME = "Smith"
_SPACES = re.compile(r" {2,}")


def _read_alphabet() -> Mapping[str, int]:
    spec = importlib.util.find_spec("hibari")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the grapheme-to-phoneme package 'hibari-tts' is not installed")
    table = json.loads((Path(spec.origin).parent / "assets" / "vocab.json").read_text(encoding="utf-8"))
    return MappingProxyType({str(symbol): int(number) for symbol, number in table.items()})


SYMBOLS: Mapping[str, int] = _read_alphabet()
"""Phoneme, stress mark, punctuation mark or space -> its id (1 and up, with gaps)."""

_UNKNOWN = re.compile(f"[^{re.escape(''.join(SYMBOLS))}]+")

SYMBOL_COUNT = max(SYMBOLS.values()) + 1
"""Rows of an embedding table that holds every id and `PAD`."""


def symbols_sha256() -> str:
    """The SHA-256 of the canonical JSON (sorted keys, no spaces, UTF-8) of `SYMBOLS`."""
    canonical = json.dumps(dict(SYMBOLS), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _sign(place: int) -> str:
    """The made-up word that stands for a reading of the lexicon: in small letters, so that it is taken for a word."""
    return MARK + "".join(_SIXTEEN[place >> shift & 15] for shift in (12, 8, 4, 0))


class _MarkedWords:
    """The dictionaries, with the readings of marks before them."""

    def __init__(self, dictionaries: Any, readings: Mapping[str, str]) -> None:
        self._dictionaries = dictionaries
        self._readings = readings

    def __call__(self, token: Any, context: Any) -> tuple[str | None, int | None]:
        """Phonemes and rating of a token; called by the reader."""
        said = self._readings.get(token.text)
        return (said, _CERTAIN) if said is not None else self._dictionaries(token, context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dictionaries, name)


class _MarkedTags:
    """The tagger, to which a mark is a name: odd letters it would take for anything, even for a quotation mark."""

    def __init__(self, tagger: Any, marks: Container[str]) -> None:
        self._tagger = tagger
        self._marks = marks

    def __call__(self, words: Sequence[str]) -> list[str]:
        """The parts of speech of the tokens of a text; called by the reader."""
        marked = [word in self._marks for word in words]
        tags: list[str] = self._tagger([_A_NAME if mark else word for word, mark in zip(words, marked, strict=True)])
        return ["NNP" if mark else tag for tag, mark in zip(tags, marked, strict=True)]


@functools.cache
def _shared_reader() -> Any:
    from hibari.g2p import G2P

    return G2P()


def _make_reader(lexicon: Lexicon) -> Any:
    """A reader of its own readings on the shared dictionaries."""
    reader = copy.copy(_shared_reader())
    readings = {_sign(place): said for place, said in enumerate(lexicon.readings)} | {LETTER_A: "ˈA"}
    reader.lexicon = _MarkedWords(reader.lexicon, readings)
    reader.tagger = _MarkedTags(reader.tagger, readings)
    # Words that stick to odd signs never reach the dictionaries, but the model for unknown words, which may forget the
    # stress.
    reader._oov = lambda word: readings.get(word) or add_stress(_shared_reader().oov(word) or "")
    return reader


def _read(reader: Any, text: str) -> list[tuple[str, str]]:
    """The spoken words of a text in their spelling, each with its phonemes."""
    from hibari.g2p.normalize import normalize

    try:
        return _join_tokens(reader.phonemize_tokens(reader.tokenize(normalize(text))))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        words = text.split()
        # One word the dictionary stumbles over must not silence the others.
        return [said for word in words for said in _read(reader, word)] if len(words) > 1 else []


def _join_tokens(tokens: Iterable[Any]) -> list[tuple[str, str]]:
    """The parts of words put together again."""
    words, spelling, phonemes = [], "", ""
    for token in tokens:
        spelling += token.text
        phonemes += token.phonemes or ""
        if token.whitespace:
            words.append((spelling, phonemes))
            spelling = phonemes = ""
    return [*words, (spelling, phonemes)] if spelling else words


class Phonemizer:
    """American English phonemes; the dictionaries load at the first use and are shared by every instance.

    With `lexicon`, the words of that file (see worker.text.lexicon) are said as it says; it is read when the phonemizer
    is made, which raises LexiconError.
    """

    def __init__(self, lexicon: Path | None = None) -> None:
        self._lexicon = Lexicon.none()
        self._reader: Any = None
        if lexicon is not None:
            self._lexicon = Lexicon.load(lexicon, self.phonemes)
            self._reader = None

    def phonemes(self, text: str) -> str:
        """The phoneme string of `text`, limited to the alphabet, with single spaces."""
        return span_words(self._say(text))[0]

    def ids(self, text: str) -> list[int]:
        """The ids of `text` between two pads, or an empty list when nothing in it can be spoken."""
        return list(self.read(text).ids)

    def read(self, text: str) -> Reading:
        """The ids of `text`, and where its words sound in them."""
        phonemes, words = span_words(self._say(text))
        if not words:
            return Reading((), ())
        return Reading((PAD, *(SYMBOLS[symbol] for symbol in phonemes), PAD), words)

    def _say(self, text: str) -> Iterator[Said]:
        """The words that are spoken for a text, as far as the alphabet has their sounds."""
        if self._reader is None:
            self._reader = _make_reader(self._lexicon)
        words, sources = fold_words(text)
        for piece in cut_pieces(self._lexicon.mark(" ".join(words), _sign), sources):
            spoken = _read(self._reader, normalise_piece(piece.text))
            owners = trace_words(piece.text.split(), [spelling for spelling, _ in spoken]) if piece.sources else []
            for (_, said), owner in zip(spoken, owners, strict=True):
                if phonemes := _SPACES.sub(" ", _UNKNOWN.sub("", said)).strip():
                    yield Said(phonemes, piece.sources[owner])
