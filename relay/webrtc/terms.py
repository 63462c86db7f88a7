"""What this relay offers to its peers, read from the settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from relay.webrtc.ice_servers import IceServers
from storage.settings import Settings


@dataclass(frozen=True, slots=True)
class WebrtcTerms:
    """The same for every peer of a process."""

    peers: int = 30
    """How many there may be at once."""
    candidates: str = "host"
    """`host`, `all` or `relay`, as the setting has it."""
    address: str = ""
    """Where a 1:1 NAT makes this machine known."""
    loopback: bool = False
    servers: IceServers = field(default_factory=IceServers)
    origins: tuple[str, ...] = ()
    """Of the pages that may call from a browser."""

    @classmethod
    def from_settings(cls, settings: Settings) -> WebrtcTerms:
        """What the settings say."""
        servers = IceServers(
            _split(settings.stun_urls), _split(settings.turn_urls), settings.turn_secret, settings.turn_ttl_s
        )
        return cls(
            settings.webrtc_peers,
            settings.webrtc_candidates,
            settings.webrtc_address,
            settings.webrtc_loopback,
            servers,
            _split(settings.allowed_origins),
        )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
