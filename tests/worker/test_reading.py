"""How texts are read: what must be said for what is written."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.text.normalise import LONGEST_PIECE, count_roman, split_text
from worker.text.phonemes import Phonemizer

phonemizer = Phonemizer()

READINGS = [
    ("A", "A."),
    ("The letter A.", "/ðə lˈɛTəɹ ˈA/"),
    ("Vitamins A, B and C", "/vˈITəmənz ˈA, bˈi ænd sˈi/"),
    ("Plan A is a plan.", "/plˈæn ˈA ɪz ɐ plˈæn./"),
    ("Dr. Smith lives on Elm Dr.", "Doctor Smith lives on Elm Drive."),
    ("St. Paul's is on Main St.", "Saint Paul's is on Main Street."),
    ("Meet me at 12 Oak St. tomorrow", "Meet me at twelve Oak Street tomorrow"),
    ("$3.50", "three dollars and fifty cents"),
    ("$1", "one dollar"),
    ("$0.99", "ninety nine cents"),
    ("£20", "twenty pounds"),
    ("€5.25", "five euros and twenty five cents"),
    ("¥500", "five hundred yen"),
    ("$2.5 million", "/tˈu pYnt fˈIv mˈɪljᵊn dˈɑləɹz/"),
    ("$5k", "five thousand dollars"),
    ("USD 20", "twenty dollars"),
    ("5 p.m.", "/fˈIv pˌiˈɛm/"),
    ("5 pm", "/fˈIv pˌiˈɛm/"),
    ("5pm", "/fˈIv pˌiˈɛm/"),
    ("10:30", "ten thirty"),
    ("10:05 a.m.", "/tˈɛn ˈO fˈIv ˌAˈɛm/"),
    ("9:00", "nine o'clock"),
    ("3/4", "three quarters"),
    ("1/2", "one half"),
    ("2 1/2 cups", "two and a half cups"),
    ("½ cup", "one half cup"),
    ("1½ hours", "one and a half hours"),
    ("№ 5", "number five"),
    ("No. 7", "number seven"),
    ("R&D", "R and D"),
    ("salt & pepper", "salt and pepper"),
    ("AT&T", "A T and T"),
    ("info@example.com", "info at example dot com"),
    ("#1", "number one"),
    ("#hashtag", "hashtag hashtag"),
    ("50%", "fifty percent"),
    ("12.5%", "/twˈɛlv pYnt fˈIv pəɹsˈɛnt/"),
    ("1,234,567", "one million two hundred thirty four thousand five hundred sixty seven"),
    ("2nd", "second"),
    ("21st", "twenty first"),
    ("the 3rd", "the third"),
    ("101st", "one hundred first"),
    ("Henry VIII", "Henry the eighth"),
    ("World War II", "World War two"),
    ("Chapter IV", "Chapter four"),
    ("Louis XIV", "Louis the fourteenth"),
    ("Elizabeth II", "Elizabeth the second"),
    ("+1 555 0100", "/plˈʌs wˈʌn, fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn zˈɪɹO zˈɪɹO/"),
    ("555-0199", "/fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn nˈIn nˈIn/"),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("https://example.com/a?b", "/ɪɡzˈæmpəl dˈɑt kˈɑm slˈæʃ ˈA kwˈɛsʧᵊn mˈɑɹk bˈi/"),
    ("www.example.org", "W W W dot example dot org"),
    ("v2.1", "version two point one"),
    ("v2.1.3", "version two point one point three"),
    ("CO2", "C O two"),
    ("H2O", "H two O"),
    ("A/B", "/ˈA bˈi/"),
    ("and/or", "and or"),
    ("24/7", "twenty four seven"),
    ("Great job! 🎉", "Great job!"),
    ("I ❤️ it", "I it"),
    ("2026-11-30", "November thirtieth, twenty twenty six"),
    ("11/30/2026", "November thirtieth, twenty twenty six"),
    ("Nov. 30, 2026", "November thirtieth, twenty twenty six"),
    ("30 November 2026", "the thirtieth of November twenty twenty six"),
    ("in 1999", "in nineteen ninety nine"),
    ("in 2005", "in two thousand five"),
    ("in the 1990s", "in the nineteen nineties"),
    ("the '90s", "the nineties"),
    ("5 km", "five kilometers"),
    ("10kg", "ten kilograms"),
    ("60 mph", "sixty miles per hour"),
    ("16 GB", "sixteen gigabytes"),
    ("100 Mbps", "one hundred megabits per second"),
    ("72°F", "seventy two degrees Fahrenheit"),
    ("-5°C", "minus five degrees Celsius"),
    ("2.4 GHz", "/tˈu pYnt fˈɔɹ ɡˈɪɡəhˌɜɹts/"),
    ("5'10\"", "five foot ten"),
    ("6 ft. tall", "six feet tall"),
    ("3.14", "/θɹˈi pYnt wˈʌn fˈɔɹ/"),
    ("0.5", "/zˈɪɹO pYnt fˈIv/"),
    ("-7", "minus seven"),
    ("1000", "one thousand"),
    ("10,000", "ten thousand"),
    ("007", "zero zero seven"),
    ("5-10 minutes", "five to ten minutes"),
    ("10–20%", "ten to twenty percent"),
    ("e.g. this", "for example this"),
    ("i.e. that", "that is that"),
    ("vs.", "versus"),
    ("Jan. 1st", "January first"),
    ("NASA", "Nasa"),
    ("FBI", "/ˌɛfbˌiˈI/"),
    ("USB-C", "/jˌuˌɛsbˈisˌi/"),
    ("iPhone", "/ˈIfˌOn/"),
    ("YouTube", "/jˈutˌub/"),
    ("JavaScript", "/ʤˈɑvəskɹˌɪpt/"),
    ("GitHub", "/ɡˌɪthˈʌb/"),
    ("parseHTTPResponse", "/pˈɑɹs ˌAʧtˌitˈipˌi ɹᵻspˈɑns/"),
    ("C++", "C plus plus"),
    ("C#", "C sharp"),
    ("F#", "F sharp"),
    ("x = 5", "x equals five"),
    ("3 x 4", "three times four"),
    ("2 + 2 = 4", "two plus two equals four"),
    ("Wi-Fi", "/wˈIfˌI/"),
    ("e-mail", "email"),
    ("file.txt", "file dot t x t"),
    ("192.168.0.1", "one nine two dot one six eight dot zero dot one"),
    ("3D", "three D"),
    ("MP3", "M P three"),
    ("4K", "four K"),
    ("B2B", "/bˈitəbˈi/"),
    ("COVID-19", "Covid nineteen"),
    ("7-Eleven", "seven eleven"),
    ("U.S.A.", "/jˌuˌɛsˈA/"),
    ("Ph.D.", "/pˌiˌAʧdˈi/"),
    ("J. K. Rowling", "J K Rowling"),
    ("rock 'n' roll", "rock and roll"),
    ("1st, 2nd and 3rd", "first, second and third"),
    ("1/3", "one third"),
    ("7/8", "seven eighths"),
    ("100%", "one hundred percent"),
    ("$1,000,000", "one million dollars"),
    ("$1.5M", "/wˈʌn pYnt fˈIv mˈɪljᵊn dˈɑləɹz/"),
    ("50¢", "fifty cents"),
    ("10 lbs.", "ten pounds"),
    ("1 lb", "one pound"),
    ("5 in. long", "five inches long"),
    ("p. 12", "page twelve"),
    ("pp. 12-15", "pages twelve to fifteen"),
    ("Fig. 3", "figure three"),
    ("approx. 10", "approximately ten"),
    ("~10", "about ten"),
    ("*very* good", "very good"),
    ("_very_ good", "very good"),
    ("`code`", "code"),
    ("tel: 1-800-555-0199", "/tˈɛl: wˈʌn, ˈAt zˈɪɹO zˈɪɹO, fˈIv fˈIv fˈIv, zˈɪɹO wˈʌn nˈIn nˈIn/"),
    ("two-thirds", "/tˌuθˈɜɹdz/"),
    ("9/11", "nine eleven"),
    ("X-ray", "/ˈɛksɹˌA/"),
    ("T-shirt", "/tˈiʃˌɜɹt/"),
    ("o'clock", "o'clock"),
    ("10 a.m. to 5 p.m.", "/tˈɛn ˌAˈɛm tə fˈIv pˌiˈɛm/"),
    ("A+", "/ˈA plˈʌs/"),
    ("grade A", "/ɡɹˈAd ˈA/"),
    ("A. Smith", "/ˈA smˈɪθ/"),
    ("5×3", "five times three"),
    ("10÷2", "ten divided by two"),
    ("±3", "plus or minus three"),
    ("5²", "five squared"),
    ("m²", "square meters"),
    ("10 m²", "ten square meters"),
    ("©2024", "copyright twenty twenty four"),
    ("20 €", "twenty euros"),
    ("20€", "twenty euros"),
    ("-$5", "minus five dollars"),
    ("US$20", "twenty U.S. dollars"),
    ("$5-10", "five to ten dollars"),
    ("10:30-11:15", "ten thirty to eleven fifteen"),
    ("1920x1080", "nineteen twenty by ten eighty"),
    ("50/50", "fifty fifty"),
    ("William Gates III", "William Gates the third"),
    ("the XIV century", "the fourteenth century"),
    ("E=mc²", "E equals mc squared"),
    ("3 m/s", "three meters per second"),
    ("100 m", "one hundred meters"),
    ("Mon-Fri", "Monday to Friday"),
    ("hello_world", "hello world"),
    ("CHF 20", "twenty francs"),
    ("THIS IS A TEST", "/ðˈɪs ˈɪz ɐ tˈɛst/"),
    (
        "Call 9999999999999999 now",
        "Call nine nine nine nine nine nine nine nine nine nine nine nine nine nine nine nine now",
    ),
    ("'tis true", "it is true"),
    ("[1]", "(one)"),
    ("see report.pdf", "see report dot P D F"),
    ("ＡＢＣ", "/ˌAbˌisˈi/"),
    ("٣ cats", "three cats"),
    ("①", "one"),
    ("3 ½ miles", "three and a half miles"),
    ("Q&A", "Q and A"),
    ("5th Ave.", "fifth Avenue."),
    ("2.5x", "/tˈu pYnt fˈIv ˈɛks/"),
    ("−5", "minus five"),
    ("10¢", "ten cents"),
]
"""Text, and the words it must be read like or, between slashes, the phonemes."""

NAMES = (
    *("Xochitl", "Nguyen", "Siobhan", "Timbrelay", "Qwen", "Kubernetes", "OpenAI", "eBay", "LinkedIn", "PostgreSQL"),
    *("McDonald's", "O'Brien", "Łódź", "Zürich", "Beyoncé", "Ubuntu", "macOS", "DeLorean", "Ozempic", "Xiaomi"),
)

HOSTILE = (
    *("a" * 10_000, "!" * 10_000, "1," * 5_000, "a@" * 5_000, "(" * 10_000, "1/2 " * 2_500, "_-" * 5_000, "aB" * 5_000),
    *(
        "[a](/b/)" * 1_200,
        "$1-" * 3_000,
        "+1 " * 3_000,
        "9" * 10_000,
        "I" * 10_000,
        "http://" + "a" * 9_990,
        "½" * 5_000,
    ),
    *("a" * 64 + "@" + "b." * 4_000, "1:" * 5_000, "é'" * 5_000, "A, " * 3_000, "1.1." * 2_500, "😀" * 10_000),
)


def sounds(phonemes: str) -> str:
    """Phonemes and stress marks without punctuation."""
    return " ".join(re.sub("[,.—;:?!]", " ", phonemes).split())


@pytest.mark.parametrize(("text", "reading"), READINGS, ids=[text for text, _ in READINGS])
def test_what_is_written_is_said(text: str, reading: str) -> None:
    """Numbers, money, times, dates, addresses, units, letters and abbreviations are said as a person says them."""
    wanted = reading[1:-1] if reading.startswith("/") else phonemizer.phonemes(reading)
    assert sounds(phonemizer.phonemes(text)) == sounds(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_dictionary_has_is_said_with_a_stress(name: str) -> None:
    """Every unseen name or brand has a vowel with a stress mark."""
    assert re.search("[ˈˌ][AIOWYiuæɐɑɔəɛɜɪʊʌᵻ]", phonemizer.phonemes(name))


def test_capitals_and_the_article() -> None:
    """A capital A is the letter when it stands alone or in a list, and the article at the head of a sentence."""
    for text in ("A", "A.", "“A”", "A, B, C", "A or B", "B and A", "Option A", "type A"):
        assert "ˈA" in phonemizer.phonemes(text), text
    for text in ("A man came.", "Not A Man", "A or an"):
        assert "ɐ" in phonemizer.phonemes(text).split(), text


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:8] for text in HOSTILE])
def test_no_text_takes_long(text: str) -> None:
    """Ten thousand characters of any kind are read, in a time that is far from that of a runaway rule."""
    began = time.process_time()
    phonemizer.ids(text)
    assert time.process_time() - began < 60


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab ", max_size=2_000))
def test_pieces_are_the_text(text: str) -> None:
    """A long text is read in pieces that are bounded and lose nothing."""
    pieces = list(split_text(text))
    assert "".join(pieces) == text
    assert all(len(piece) <= LONGEST_PIECE for piece in pieces)


def test_no_long_number_falls_silent() -> None:
    """A number too long for a name is said digit by digit."""
    assert phonemizer.phonemes("7" * 40).count("sˈɛvən") == 40


@pytest.mark.parametrize(("numeral", "number"), [("VIII", 8), ("XIV", 14), ("XXXIX", 39), ("III", 3)])
def test_roman_numerals_count(numeral: str, number: int) -> None:
    """A smaller letter before a larger one is taken off."""
    assert count_roman(numeral) == number
