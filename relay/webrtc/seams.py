"""The few places where aiortc and aioice give us no way but their insides; tests/relay/webrtc/test_seams.py pins each.

Nothing else in this room touches an attribute of theirs that begins with an underscore.
"""

from __future__ import annotations

import functools
from typing import Any

import aioice.ice
from aiortc import RTCPeerConnection, RTCRtpReceiver, rtcsctptransport
from aiortc.jitterbuffer import JitterBuffer

GATHERING_S = 2
JITTER_TARGET_MS = 50
_FRAME_MS = 20
_JITTER_CAPACITY = 16
_LOOPBACK = "127.0.0.1"
_DATA_CHUNK_BYTES = 1100
"""aiortc's 1200 make datagrams of some 1300 bytes, which IPv6's least MTU of 1280 and many a VPN do not carry."""


def offer_loopback() -> None:
    """Let peers offer 127.0.0.1, which aioice leaves out; without a network they could not meet on one machine."""
    original = aioice.ice.get_host_addresses
    if isinstance(original, functools.partial):
        return

    def with_loopback(_original: Any, use_ipv4: bool, use_ipv6: bool) -> list[str]:
        return [*_original(use_ipv4=use_ipv4, use_ipv6=use_ipv6), *([_LOOPBACK] if use_ipv4 else [])]

    aioice.ice.get_host_addresses = functools.partial(with_loopback, original)


def shorten_datagrams() -> None:
    """Let data channels work where datagrams of full size do not arrive."""
    rtcsctptransport.USERDATA_MAX_LENGTH = _DATA_CHUNK_BYTES


def cap_gathering(connection: RTCPeerConnection) -> None:
    """Wait two seconds, and not five, for servers of STUN and TURN that do not answer."""
    transports = {transceiver.receiver.transport.transport for transceiver in connection.getTransceivers()}
    for transport in transports | ({connection.sctp.transport.transport} if connection.sctp is not None else set()):
        ice = transport._connection
        ice.get_component_candidates = functools.partial(  # type: ignore[method-assign]
            ice.get_component_candidates, timeout=GATHERING_S
        )


def set_jitter_target(receiver: RTCRtpReceiver) -> None:
    """Keep about 50 ms of captured audio back, in whose order it is put right; aiortc keeps 80."""
    buffer = JitterBuffer(capacity=_JITTER_CAPACITY, prefetch=JITTER_TARGET_MS // _FRAME_MS)
    receiver._RTCRtpReceiver__jitter_buffer = buffer  # type: ignore[attr-defined]


def listen(receiver: RTCRtpReceiver, *, on: bool) -> None:
    """Take what a client sends, or drop it before it costs anything (what is decoded and not read piles up)."""
    receiver._enabled = on
