"""The figures of the WebRTC door for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PEERS = Gauge("timbrelay_webrtc_peers", "WebRTC peers that are there or being connected")
ENDED = Counter("timbrelay_webrtc_peers_ended", "WebRTC peers that ended, by reason", ["reason"])
REFUSED = Counter("timbrelay_webrtc_peers_refused", "WebRTC peers refused because there were too many")
CLOSE_TIMEOUTS = Counter("timbrelay_webrtc_close_timeouts", "Connections that could not be closed in time")
LOSS = Gauge("timbrelay_webrtc_last_loss_ratio", "The share of packets lost in the last report of any peer")
