"""Texts as accidents and attackers send them. Every one carries a word that nothing of ours may keep."""

from __future__ import annotations

from random import Random

CANARY = "quixotically"
"""In each text; a log that holds it holds what somebody wanted to be spoken."""

HALF_PAIR = "\ud83d"
ODD = (
    "",
    " ",
    "\n\t\r\n",
    ".",
    "?!",
    "🎉🎉🎉",
    "👩‍👩‍👧‍👦",
    "你好，世界。",
    "Привет, мир.",
    "مرحبا بالعالم.",
    "\u202eright to left",
    "\u200b\u200b\ufeff",
    "a\u0301\u0327" * 40,
    "\x00\x01\x07\x1b[31m\x7f",
    f"half {HALF_PAIR}",
    "<script>alert(1)</script>",
    "<p>Hello <b>there</b>.</p>",
    '<speak><break time="99999s"/><prosody rate="x-fast">Hello.</prosody></speak>',
    '<break time="3s"/>' * 20,
    "<" * 500,
    "&amp;&lt;&#x0;&unknown;",
    "'; DROP TABLE voices; --",
    "${jndi:ldap://x}{{7*7}}%s%n%00",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "1" * 400,
    "3.14e99999 $1,000,000,000,000.99 12/31/9999 +1 (555) 000-0000",
    "e.g. Mr. A. B. C. D. i.e. ... -- !!! ???",
    "A" * 9_999,
    "word " * 1_999,
    "x" * 10_001,
    "no end in sight " * 700,
)


def make_text(random: Random) -> str:
    """A text that may be spoken, may be refused, and may be no text at all."""
    drawn = random.random()
    if drawn < 0.5:
        return f"{CANARY} hello. "
    odd = random.choice(ODD)
    if drawn < 0.9:
        return odd if random.random() < 0.5 else f"{CANARY} {odd}"
    return "".join(
        chr(random.choice((random.randrange(0x80), random.randrange(0xD800, 0xE000), 0x10FFFF))) for _ in odd
    )
