"""Web addresses, e-mail addresses and names of files, as a person reads them out: "info at example dot com"."""

import re
from collections.abc import Iterator

from worker.text.letters import spell_letters

_TOP = "com|org|net|edu|gov|io|co|uk|de|fr|info|biz|us|ca|au|tv|me|ly|ai|dev|app|eu|ch|nl|jp|in|it|es|se|no"
_FILE = "txt|pdf|html?|xml|json|csv|tsv|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|mp[34]|wav|zip|gz|py|js|ts|exe|md|ya?ml"
_HOST = r"(?:[\w-]{1,63}\.){1,6}"
_TAIL = r"(?::\d{1,5})?(?:[/?#][^\s<>\"']{0,500})?"

_ADDRESS = re.compile(
    rf"(?<![\w.@/])(?:https?|ftp)://(?P<url>[^\s<>\"']{{1,500}})"
    rf"|(?<![\w.+@/-])(?P<mail>[\w.+-]{{1,64}}@{_HOST}\w{{2,24}})(?![\w@])"
    rf"|(?<![\w.@/-])(?P<host>(?:www\.{_HOST}\w{{2,24}}|{_HOST}(?:{_TOP}))(?![\w@-]|\.\w){_TAIL})"
    rf"|(?<![\w.@/-])(?P<file>[\w-]{{1,60}}\.(?:{_FILE}))(?![\w@-]|\.\w)"
)
_MAY_BE_ADDRESS = re.compile(r"://|@|\w\.\w")
_PART = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_AFTERWARDS = ".,;:!?)"
_SIGNS = {
    ".": "dot",
    "/": "slash",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "-": "dash",
    "_": "underscore",
    "@": "at",
    ":": "colon",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
}
_WORDS = {"www": "W W W", "jpg": "jay peg", "jpeg": "jay peg", "json": "Jason", "exe": "E X E", "html": "H T M L"}
_WHOLE_WORDS = "com org net info biz app dev me be to my go us it in is at on of or and the de"
_READ_WHOLE = frozenset(_WHOLE_WORDS.split())
_VOWELS = frozenset("aeiouyAEIOUY")


def read_addresses(text: str) -> str:
    """The text with every address in words; the protocol of a web address is not said."""
    return _ADDRESS.sub(_say, text) if _MAY_BE_ADDRESS.search(text) else text


def _say(found: re.Match[str]) -> str:
    address = found.group(found.lastgroup or 0)
    core = address.rstrip(_AFTERWARDS).rstrip("/") or address
    rest = address[len(core) :].lstrip("/")
    return " ".join(_say_parts(core)) + rest


def _say_parts(address: str) -> Iterator[str]:
    for part in _PART.findall(address):
        if part in _SIGNS:
            yield _SIGNS[part]
        elif part.lower() in _WORDS:
            yield _WORDS[part.lower()]
        elif part.isdecimal():
            yield part if len(part) < 4 and part[0] != "0" else " ".join(part)
        elif part[0].isalpha():
            yield part if _is_word(part) else spell_letters(part)


def _is_word(part: str) -> bool:
    return part in _READ_WHOLE or (len(part) > 2 and not _VOWELS.isdisjoint(part))
