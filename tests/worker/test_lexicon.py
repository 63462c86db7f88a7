"""The user lexicon: words and how they are said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import LexiconError
from worker.text.lexicon import MOST_ENTRIES, Lexicon
from worker.text.phonemes import SYMBOLS, Phonemizer
from worker.text.pronunciation import add_stress, make_possessive, parse_reading

plain = Phonemizer()

LINES = """\
# brands and names
Timbrelay\tT IH1 M B R AH0 L EY2
GIF\t/dʒɪf/\t
Nguyen\twin   # as in Vietnam
C#\tsee sharp
AT&T\tˌAtiˌəntˈi
Polish\tpole ish
polish\tP AA1 L IH0 SH
Kubernetes\t/ˌkubɚˈnɛtiz/
"""


@pytest.fixture(scope="module")
def phonemizer(tmp_path_factory: pytest.TempPathFactory) -> Phonemizer:
    path = tmp_path_factory.mktemp("lexicon") / "words.tsv"
    path.write_text(LINES, encoding="utf-8")
    return Phonemizer(path)


def refusal(tmp_path: Path, content: str | bytes) -> LexiconError:
    path = tmp_path / "words.tsv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(LexiconError) as refused:
        Phonemizer(path)
    assert str(path) in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    ("text", "phonemes"),
    [
        ("Timbrelay is here.", "tˈɪmbɹəlˌA ɪz hˈɪɹ."),
        ("“Timbrelay,” he said", "tˈɪmbɹəlˌA, hi sˈɛd"),
        ("(TIMBRELAY)", "(tˈɪmbɹəlˌA)"),
        ("Timbrelay's voice", "tˈɪmbɹəlˌAz vˈYs"),
        ("the GIF’s end", "ðə ʤɪfs ˈɛnd"),
        ("pre-Timbrelay/GIF", "pɹˈi tˈɪmbɹəlˌA ʤɪf"),
        ("We write C#.", "wˌi ɹˈIt sˈi ʃˈɑɹp."),
        ("AT&T rose", "ˌAtiˌəntˈi ɹˈOz"),
        ("Kubernetes", "kˌubəɹnˈɛtiz"),
        ("the apple", "ði ˈæpᵊl"),
    ],
)
def test_words_are_said_as_the_lexicon_says(phonemizer: Phonemizer, text: str, phonemes: str) -> None:
    """Whole words are replaced, with signs around them, their possessive and within compounds, and nothing else is."""
    assert phonemizer.phonemes(text) == phonemes


def test_the_case_as_written_goes_first(phonemizer: Phonemizer) -> None:
    """An entry in the very case wins over one in another."""
    first, second = phonemizer.phonemes("Polish"), phonemizer.phonemes("polish")
    assert first != second
    assert second == "pˈɑlɪʃ"
    assert phonemizer.phonemes("POLISH") == first


def test_a_part_of_a_word_is_no_word(phonemizer: Phonemizer) -> None:
    """An entry says nothing about longer words that it begins or ends."""
    assert phonemizer.phonemes("polished gifted") == plain.phonemes("polished gifted")


def test_the_next_word_hears_it(tmp_path: Path) -> None:
    """The article before an entry follows the sound of the entry, not its letters."""
    path = tmp_path / "words.tsv"
    path.write_text("Xyzzy\tAE1 P AH0 L\n", encoding="utf-8")
    assert Phonemizer(path).phonemes("the Xyzzy").startswith("ði ")


def test_other_phonemizers_do_not_know_it(phonemizer: Phonemizer) -> None:
    """A lexicon belongs to the phonemizer that it was given to, though all share the dictionaries."""
    assert plain.phonemes("Timbrelay") != phonemizer.phonemes("Timbrelay")


def test_an_empty_lexicon_changes_nothing(tmp_path: Path) -> None:
    """A file of comments and blank lines is a lexicon without words."""
    path = tmp_path / "words.tsv"
    path.write_text("\ufeff# nothing\n\n   \n", encoding="utf-8")
    assert Phonemizer(path).phonemes("Hello there.") == "həlˈO ðˈɛɹ."


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Timbrelay", "there is no tab"),
        ("Timbrelay\t", "there is no tab"),
        ("Timbre lay\tT IH1", "is not one word"),
        ("!!\tT IH1", "is not one word"),
        ("x" * 61 + "\tT IH1", "is not one word"),
        ("Timbrelay\tT IH1 QQ0", "'QQ0' is no ARPAbet sound"),
        ("Timbrelay\tT IH M1", "'IH' needs its stress right"),
        ("Timbrelay\tT1 IH1", "'T1' needs its stress right"),
        ("Timbrelay\tT IH7", "'IH7' needs its stress right"),
        ("Timbrelay\t/tɪmбreɪ/", "'б' is no sound of American English"),
        ("Timbrelay\t/ˈˌ/", "holds no sound"),
        ("Timbrelay\t" + "ə" * 201, "has over 200 characters"),
        ("Timbrelay\twin\nTimbrelay\twin", "is there already"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    """The error names the file, the line and the reason, and the fix."""
    refused = refusal(tmp_path, f"# first\n{line}\n")
    assert refused.line == 2 + line.count("\n")
    assert reason in refused.reason
    assert f"line {refused.line}" in str(refused)


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    """A missing file, one that is no text and one that is too large are refused as a whole."""
    with pytest.raises(LexiconError, match=r"cannot be read .* set TIMBRELAY_LEXICON"):
        Phonemizer(tmp_path / "none.tsv")
    with pytest.raises(LexiconError, match="cannot be read"):
        Phonemizer(tmp_path)
    assert "not UTF-8" in refusal(tmp_path, b"caf\xe9\twin").reason
    assert "bytes" in refusal(tmp_path, b"#" * 2_000_001).reason
    assert (
        f"over {MOST_ENTRIES} words" in refusal(tmp_path, "".join(f"w{n}\tə\n" for n in range(MOST_ENTRIES + 1))).reason
    )


@pytest.mark.parametrize(
    ("written", "phonemes"),
    [
        ("HH AH0 L OW1", "həlˈO"),
        ("B ER1 D", "bˈɜɹd"),
        ("/ˈbʌtɚ/", "bˈʌtəɹ"),
        ("həˈloʊ", "həlˈO"),
        ("hello there", "həlˈO ðˈɛɹ"),
        ("/ˈstɹɛŋθ/", "stɹˈɛŋθ"),
    ],
)
def test_the_three_ways_to_write_a_pronunciation(written: str, phonemes: str) -> None:
    """ARPAbet, IPA and a respelling become our alphabet with the stress right before its vowel."""
    assert parse_reading(written, plain.phonemes) == phonemes


def test_a_stress_is_found_where_none_is_written() -> None:
    """Several syllables without a mark get the main stress at the first vowel; one syllable may go without."""
    assert add_stress("kəbænə") == "kˈəbænə"
    assert add_stress("kˌəbænə") == "kˌəbænə"
    assert add_stress("ðə") == "ðə"


def test_possessives_sound_as_they_end() -> None:
    """After a hiss a syllable, after a voiceless sound s, else z."""
    assert [make_possessive(word) for word in ("ʤˈɔɹʤ", "ʤˈæk", "ˈæn")] == ["ʤˈɔɹʤᵻz", "ʤˈæks", "ˈænz"]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_no_text_upsets_a_lexicon(phonemizer: Phonemizer, text: str) -> None:
    """Whatever the text, what is said with a lexicon is within the alphabet."""
    assert set(phonemizer.phonemes(text)) <= set(SYMBOLS)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=" .,'“”-ab", max_size=30))
def test_only_known_words_are_marked(text: str) -> None:
    """Marking a text and putting the words back gives the text."""
    lexicon = Lexicon.of({"a": "ˈA", "ab": "ˈæb"})
    words = ("a", "a's", "ab", "ab's")
    assert lexicon.mark(text, lambda place: words[place]) == text
