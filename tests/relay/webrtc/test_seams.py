"""relay.webrtc.seams: the insides of aiortc and aioice that we rely on are there, and do what we rely on."""

from __future__ import annotations

import functools
import inspect

import aioice.ice
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, rtcrtpreceiver, rtcsctptransport
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtp import RtpPacket

from relay.webrtc import seams


async def test_loopback_is_offered_once_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """aioice leaves 127.0.0.1 out; with the seam a peer has a candidate there, however often it is asked for."""
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["192.0.2.7"])
    seams.offer_loopback()
    seams.offer_loopback()
    assert aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=False) == ["192.0.2.7", "127.0.0.1"]
    source = inspect.getsource(aioice.ice.Connection.gather_candidates)
    assert "get_host_addresses(" in source


async def test_gathering_waits_two_seconds_for_servers() -> None:
    """aioice's own bound is five, a parameter of the method that we wrap."""
    parameters = inspect.signature(aioice.ice.Connection.get_component_candidates).parameters
    assert parameters["timeout"].default == 5
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connection.addTransceiver("audio")
    connection.createDataChannel("x")
    seams.cap_gathering(connection)
    assert connection.sctp is not None
    for transport in (connection.getTransceivers()[0].receiver.transport, connection.sctp.transport):
        wrapped = transport.transport._connection.get_component_candidates
        assert isinstance(wrapped, functools.partial) and wrapped.keywords == {"timeout": seams.GATHERING_S}
    await connection.close()


async def test_the_jitter_buffer_of_captured_audio_holds_about_50_ms() -> None:
    """aiortc's holds four frames of 20 ms; ours gives the first as soon as two complete ones are there."""
    assert "JitterBuffer(capacity=16, prefetch=4)" in inspect.getsource(rtcrtpreceiver)
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    receiver = connection.addTransceiver("audio").receiver
    assert isinstance(receiver._RTCRtpReceiver__jitter_buffer, JitterBuffer)  # type: ignore[attr-defined]
    seams.set_jitter_target(receiver)
    buffer = receiver._RTCRtpReceiver__jitter_buffer  # type: ignore[attr-defined]
    given = []
    for number in range(6):
        packet = RtpPacket(sequence_number=number, timestamp=960 * number)
        packet._data = b"x"  # type: ignore[attr-defined]
        given.append(buffer.add(packet)[1] is not None)
    assert given == [False, False, True, True, True, True]
    await connection.close()


def test_a_receiver_can_be_told_to_drop_what_comes() -> None:
    """Before it is decoded, which costs a thread and a queue."""
    assert "if not self._enabled:\n            return" in inspect.getsource(RTCRtpReceiver._handle_rtp_packet)


def test_datagrams_of_data_channels_fit_the_least_mtu() -> None:
    """IPv6 promises 1280 bytes; with all headers ours stay below."""
    seams.shorten_datagrams()
    assert rtcsctptransport.USERDATA_MAX_LENGTH == 1100
    assert "USERDATA_MAX_LENGTH" in inspect.getsource(rtcsctptransport.RTCSctpTransport._send)
