"""STUN and TURN: which servers there are, and credentials for them that soon expire (coturn's REST scheme)."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class IceServer:
    """One entry of a browser's `iceServers`."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, object]:
        """As RTCIceServer (W3C WebRTC, section 4.2.4) spells it."""
        spelt: dict[str, object] = {"urls": list(self.urls)}
        return spelt if self.username is None else {**spelt, "username": self.username, "credential": self.credential}


@dataclass(frozen=True, slots=True)
class IceServers:
    """The servers of this service."""

    stun_urls: tuple[str, ...] = ()
    turn_urls: tuple[str, ...] = ()
    turn_secret: SecretStr = field(default_factory=lambda: SecretStr(""))
    turn_ttl_s: int = 600

    def lend(self, name: str, unix_s: int) -> list[IceServer]:
        """The servers with credentials for one peer.

        The user name is `expiry:name` and the password its HMAC-SHA1 under the secret that is shared with the server
        (draft-uberti-behave-turn-rest-00, section 2.2; coturn's `use-auth-secret`).
        """
        servers = [IceServer(self.stun_urls)] if self.stun_urls else []
        if self.turn_urls and self.turn_secret.get_secret_value():
            username = f"{unix_s + self.turn_ttl_s}:{name}"
            key = self.turn_secret.get_secret_value().encode()
            proof = hmac.digest(key, username.encode(), "sha1")
            servers.append(IceServer(self.turn_urls, username, base64.b64encode(proof).decode()))
        return servers


def to_links(servers: list[IceServer]) -> list[str]:
    """The values of `Link` headers (RFC 9725, section 4.6)."""
    return [_to_link(server, url) for server in servers for url in server.urls]


def _to_link(server: IceServer, url: str) -> str:
    link = f'<{url}>; rel="ice-server"'
    if server.username is None:
        return link
    return f'{link}; username="{server.username}"; credential="{server.credential}"; credential-type="password"'
