"""Pronunciations as people write them (ARPAbet, the International Phonetic Alphabet, a respelling) in our alphabet."""

import re
from collections.abc import Callable

Reader = Callable[[str], str]
"""Says the phonemes of ordinary words."""

PRIMARY, SECONDARY = "ˈ", "ˌ"
VOWELS = frozenset("AIOWYiuæɐɑɔəɛɜɪʊʌᵊᵻ")
_CONSONANTS = frozenset("bdfhjklmnpstvwzðŋɡɹʃʒʤʧθT")
_SOUNDS = VOWELS | _CONSONANTS | {PRIMARY, SECONDARY, " "}

_ARPABET_TABLE = (
    "AA=ɑ AE=æ AH=ʌ AO=ɔ AW=W AY=I EH=ɛ ER=ɜɹ EY=A IH=ɪ IY=i OW=O OY=Y UH=ʊ UW=u B=b CH=ʧ D=d DH=ð F=f "
    "G=ɡ HH=h JH=ʤ K=k L=l M=m N=n NG=ŋ P=p R=ɹ S=s SH=ʃ T=t TH=θ V=v W=w Y=j Z=z ZH=ʒ "
)
_ARPABET = dict(pair.split("=") for pair in _ARPABET_TABLE.split())
_ARPABET_UNSTRESSED = {"AH": "ə", "ER": "əɹ"}
_STRESS_DIGITS = {"0": "", "1": PRIMARY, "2": SECONDARY}
_IPA = (
    *(("eɪ", "A"), ("aɪ", "I"), ("oʊ", "O"), ("əʊ", "O"), ("aʊ", "W"), ("ɔɪ", "Y"), ("tʃ", "ʧ"), ("dʒ", "ʤ")),
    *(("ɝ", "ɜɹ"), ("ɚ", "əɹ"), ("ɜː", "ɜɹ"), ("ɜɹɹ", "ɜɹ"), ("ː", ""), ("r", "ɹ"), ("g", "ɡ"), ("ɾ", "T")),
    *(("ʔ", "t"), ("ɫ", "l"), ("ɒ", "ɑ"), ("'", PRIMARY), ("ʲ", ""), (".", ""), ("ɨ", "ᵻ"), ("\u0361", "")),
)
_LOOKS_ARPABET = re.compile(r"[A-Z]{1,2}[0-9]?(?: +[A-Z]{1,2}[0-9]?)*")
_LOOKS_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*")


def parse_reading(reading: str, read: Reader) -> str:
    """Phonemes of a pronunciation; raises ValueError for what is none."""
    if reading[0] == "/" and reading[-1] == "/" and len(reading) > 2:
        return _from_ipa(reading[1:-1])
    if _LOOKS_ARPABET.fullmatch(reading) and re.search(r"\d", reading):
        return _from_arpabet(reading.split())
    if _LOOKS_WORDS.fullmatch(reading):
        said = "".join(sound for sound in read(reading) if sound in _SOUNDS).strip()
        if not said:
            raise ValueError(f"{reading!r} cannot be read aloud; respell it in words or write phonemes")
        return said
    return _from_ipa(reading)


def _from_arpabet(sounds: list[str]) -> str:
    said = []
    for sound in sounds:
        name, digit = (sound[:-1], sound[-1]) if sound[-1].isdigit() else (sound, "")
        phoneme = _ARPABET.get(name)
        if phoneme is None:
            raise ValueError(f"{sound!r} is no ARPAbet sound; use those of the CMU dictionary, such as T IH1 M")
        if (phoneme[0] in VOWELS) is not bool(digit) or digit not in ("", *_STRESS_DIGITS):
            raise ValueError(f"{sound!r} needs its stress right: 0, 1 or 2 after each vowel, nothing after consonants")
        said.append(
            _STRESS_DIGITS.get(digit, "") + (_ARPABET_UNSTRESSED.get(name, phoneme) if digit == "0" else phoneme)
        )
    return "".join(said)


def _from_ipa(text: str) -> str:
    said = text
    for spelling, phoneme in _IPA:
        said = said.replace(spelling, phoneme)
    said = _stress_before_vowels(re.sub(r" {2,}", " ", said))
    unknown = sorted(set(said) - _SOUNDS)
    if unknown:
        raise ValueError(
            f"{''.join(unknown)!r} is no sound of American English here; use {''.join(sorted(_SOUNDS - {' '}))},"
            " ARPAbet with stress digits, or a respelling in plain words"
        )
    if not VOWELS & set(said) and not _CONSONANTS & set(said):
        raise ValueError("the pronunciation holds no sound; write phonemes or a respelling")
    return said


def _stress_before_vowels(said: str) -> str:
    """The alphabet has stress marks right before their vowel, dictionaries of other makers before the syllable."""
    return re.sub(r"([ˈˌ])([^ˈˌ AIOWYiuæɐɑɔəɛɜɪʊʌᵊᵻ]+)(?=[AIOWYiuæɐɑɔəɛɜɪʊʌᵊᵻ])", r"\2\1", said)


def add_stress(phonemes: str) -> str:
    """Phonemes of several syllables that have no stress mark get the main stress at the first vowel."""
    if PRIMARY in phonemes or SECONDARY in phonemes or sum(sound in VOWELS for sound in phonemes) < 2:
        return phonemes
    first = next(place for place, sound in enumerate(phonemes) if sound in VOWELS)
    return phonemes[:first] + PRIMARY + phonemes[first:]


def make_possessive(phonemes: str) -> str:
    """Phonemes with the ending 's: z, s after what is voiceless, and a syllable of its own after a hiss."""
    if phonemes[-1] in "szʃʒʧʤ":
        return phonemes + "ᵻz"
    return phonemes + ("s" if phonemes[-1] in "ptkfθ" else "z")
