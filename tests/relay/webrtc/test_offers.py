"""relay.webrtc.offers and relay.webrtc.trickle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import InvalidRequest
from relay.webrtc.offers import MAX_CANDIDATES, advertise, is_useful, read_offer
from relay.webrtc.trickle import read_fragment

OFFER = """v=0
o=- 1 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0
m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:0123456789012345678901
a=fingerprint:sha-256 00:11
a=setup:actpass
a=mid:0
a=recvonly
a=rtpmap:111 opus/48000/2
""".replace("\n", "\r\n")
REACHABLE = "a=candidate:1 1 udp 2113937151 192.0.2.7 40000 typ host generation 0 network-cost 999"
HIDDEN = "a=candidate:2 1 udp 2113937151 4a2a1f6e-3c8b-4bb0-9d4e-1234567890ab.local 40001 typ host"
STREAM = "a=candidate:3 1 tcp 1518280447 192.0.2.7 9 typ host tcptype active"


def test_candidates_that_lead_nowhere_are_left_out() -> None:
    """Names that only their own network can resolve, and TCP; everything else of the offer stays as it is."""
    offer = read_offer(OFFER + "\r\n".join([REACHABLE, HIDDEN, STREAM, ""]))
    assert offer == OFFER + REACHABLE + "\r\n"


@pytest.mark.parametrize(
    "candidate",
    [
        "candidate:1 1 udp 1 0.0.0.0 4000 typ host",
        "candidate:1 1 udp 1 239.1.2.3 4000 typ host",
        "candidate:1 1 udp 1 example.com 4000 typ host",
        "candidate:1 1 udp 1 192.0.2.7 0 typ host",
        "candidate:1 1 udp 1 192.0.2.7 70000 typ host",
        "candidate:1 1 udp x 192.0.2.7 4000 typ host",
        "candidate:1 1 udp 1 192.0.2.7",
        pytest.param(f"candidate:1 1 udp 1 192.0.2.7 {'9' * 5_000} typ host", id="longer than any number"),
        "",
    ],
)
def test_what_cannot_be_an_address_is_no_candidate(candidate: str) -> None:
    """No name is looked up for a client, nor a group of machines sent to."""
    assert not is_useful(candidate)


def test_candidates_are_bounded() -> None:
    """An offer cannot make the relay send checks to any number of addresses."""
    many = "".join(REACHABLE.replace("40000", str(port)) + "\r\n" for port in range(20_000, 20_500))
    assert read_offer(OFFER + many).count("a=candidate:") == MAX_CANDIDATES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        OFFER.replace("m=audio", "m=video"),
        OFFER.replace("opus/48000/2", "PCMU/8000"),
        OFFER.replace("a=fingerprint", "a=finger"),
        OFFER + "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n" * 8,
        OFFER + "a=x" * 30_000,
        "v=0\ud800",
        OFFER.replace("BUNDLE 0", "BUNDLE 9 0"),
        OFFER.replace("a=mid:0", "a=mid:0 "),
    ],
)
def test_what_is_no_offer_is_refused(text: str) -> None:
    """With a sentence that says what an offer needs."""
    with pytest.raises(InvalidRequest, match="the offer"):
        read_offer(text)


def test_an_outer_address_is_offered_beside_the_inner() -> None:
    """Every IPv4 candidate of the machine is repeated as one that STUN would have found at the outer address."""
    answer = (
        OFFER
        + "a=candidate:7 1 udp 2130706431 10.0.0.5 40000 typ host\r\na=candidate:8 1 udp 1 fd00::2 41 typ host\r\n"
    )
    lines = advertise(answer, "198.51.100.9").splitlines()
    (outer,) = (line for line in lines if "198.51.100.9" in line)
    assert outer.split()[4:] == ["198.51.100.9", "40000", "typ", "srflx", "raddr", "10.0.0.5", "rport", "40000"]
    assert int(outer.split()[3]) >> 24 == 100
    assert lines.index(outer) == next(i for i, line in enumerate(lines) if "10.0.0.5" in line) + 1
    assert advertise(answer, "") == answer


FRAGMENT = f"a=ice-ufrag:abcd\r\na=ice-pwd:x\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n{REACHABLE}\r\n{HIDDEN}\r\n"


def test_a_fragment_names_its_session_and_its_candidates() -> None:
    """RFC 8840, section 9: candidates belong to the section that they stand in."""
    fragment = read_fragment(FRAGMENT)
    (trickled,) = fragment.candidates
    assert (fragment.ufrag, trickled.mid, trickled.index, fragment.complete) == ("abcd", "0", 0, False)
    assert trickled.candidate.startswith("1 1 udp 2113937151 192.0.2.7 40000")
    assert read_fragment(FRAGMENT + "a=end-of-candidates\r\n").complete


def test_a_fragment_without_its_session_is_refused() -> None:
    """Nobody could tell what it belongs to."""
    with pytest.raises(InvalidRequest, match="ice-ufrag"):
        read_fragment("m=audio 9 x 0\r\na=mid:0\r\n" + REACHABLE)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing that a client sends breaks a reader."""
    for reader in (read_offer, read_fragment):
        with pytest.raises(InvalidRequest):
            reader(text)
    assert not is_useful(text) or text.split()[2].lower() == "udp"
