"""Session descriptions as text (RFC 8866): what is taken of an offer, and what an answer says beyond aiortc's own."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from relay.errors import InvalidRequest

MAX_BYTES = 64 * 1024
MAX_SECTIONS = 8
MAX_CANDIDATES = 64
"""Of one peer, trickled ones included: each makes the relay send checks to an address that the client chose."""
_CANDIDATE = "a=candidate:"
_BUNDLE, _MID = "a=group:BUNDLE", "a=mid:"
_CONNECTED = ("m=audio ", "m=video ", "m=application ")
_OPUS = re.compile(r"a=rtpmap:\d+ opus/48000/2\s*$", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
"""None in a candidate is longer (RFC 8839, section 5.1), and Python reads none that is very long."""
_LAST_PORT = 2**16 - 1


def read_offer(text: str) -> str:
    """The offer without the candidates that lead nowhere; raises InvalidRequest when it is none for us."""
    if len(text) > MAX_BYTES:
        raise _invalid(f"has more than {MAX_BYTES // 1024} KiB")
    lines = text.splitlines()
    sections = [line for line in lines if line.startswith("m=")]
    if not lines or not lines[0].startswith("v=0") or len(sections) > MAX_SECTIONS:
        raise _invalid(f"must be a session description (RFC 8866) with at most {MAX_SECTIONS} media sections")
    if not any(line.startswith("m=audio ") for line in sections) or not any(map(_OPUS.match, lines)):
        raise _invalid("must ask for audio in Opus: add an audio transceiver of direction `recvonly` or `sendrecv`")
    if not any(line.startswith("a=fingerprint:") for line in lines):
        raise _invalid("has no fingerprint of a DTLS certificate; WebRTC is always encrypted (RFC 8827)")
    if not _find_bundled(lines) <= _find_mids(lines):
        raise _invalid("bundles media sections that it does not have (`a=group:BUNDLE`, RFC 9143)")
    return "\r\n".join([*_keep_useful(lines), ""])


def is_useful(candidate: str) -> bool:
    """Whether a candidate (RFC 8839, section 5.1) can be reached: over UDP, and by an address, not by a name.

    Browsers hide their addresses behind `.local` names, which nobody outside their network can resolve, and aioice
    waits a second for each; their own checks arrive all the same, and lead back (RFC 8445, section 7.3.1.3).
    """
    parts = candidate.removeprefix("a=").removeprefix("candidate:").split()
    if len(parts) < 8 or parts[2].lower() != "udp":
        return False
    numbers = (parts[1], parts[3], parts[5])
    if not all(_NUMBER.fullmatch(part) for part in numbers) or not 0 < int(parts[5]) <= _LAST_PORT:
        return False
    try:
        address = ipaddress.ip_address(parts[4])
    except ValueError:
        return False
    return not address.is_unspecified and not address.is_multicast


def advertise(answer: str, address: str) -> str:
    """The answer with each IPv4 candidate repeated at the address under which a 1:1 NAT makes this machine known."""
    if not address:
        return answer
    lines: list[str] = []
    for line in answer.splitlines():
        lines.append(line)
        if line.startswith(_CANDIDATE) and (outer := _translate(line, address)):
            lines.append(outer)
    return "\r\n".join([*lines, ""])


def _translate(line: str, address: str) -> str | None:
    parts = line.removeprefix(_CANDIDATE).split()
    inner, port = parts[4], parts[5]
    if parts[7] != "host" or inner == address or ":" in inner or inner.startswith("127."):
        return None
    # As a server of STUN would have told it (RFC 8445, section 5.1.1.2), with a foundation of its own.
    priority = (100 << 24) + (int(parts[3]) & 0xFFFFFF)
    found = f"{parts[0]}1 {parts[1]} udp {priority} {address} {port} typ srflx raddr {inner} rport {port}"
    return f"{_CANDIDATE}{found}"


def _keep_useful(lines: list[str]) -> Iterator[str]:
    kept = 0
    for line in lines:
        if line.startswith(_CANDIDATE):
            if kept >= MAX_CANDIDATES or not is_useful(line):
                continue
            kept += 1
        yield line


def _find_bundled(lines: list[str]) -> set[str]:
    groups = [line.removeprefix(_BUNDLE).split(" ") for line in lines if line.startswith(_BUNDLE)]
    return {mid for group in groups for mid in group if mid}


def _find_mids(lines: list[str]) -> set[str]:
    """Of the sections that can be connected: aiortc falls over a bundle that is led by any other."""
    mids, connected = set(), False
    for line in lines:
        if line.startswith("m="):
            connected = line.startswith(_CONNECTED)
        elif connected and line.startswith(_MID):
            mids.add(line.removeprefix(_MID))
    return mids


def _invalid(rule: str) -> InvalidRequest:
    return InvalidRequest(f"the offer {rule}", field="sdp")
