"""relay.webrtc.ice_servers."""

from __future__ import annotations

import base64
import hashlib
import hmac

from pydantic import SecretStr

from relay.webrtc.ice_servers import IceServers, to_links

TURN = IceServers(
    ("stun:stun.example.com:3478",),
    ("turn:turn.example.com:3478?transport=udp", "turns:turn.example.com"),
    SecretStr("shared"),
    600,
)


def test_credentials_are_what_coturn_expects_and_soon_expire() -> None:
    """The user name is `expiry:name`; the password its HMAC-SHA1 in base64."""
    stun, turn = TURN.lend("abc", 1_000_000)
    assert (stun.as_dict(), turn.username) == ({"urls": ["stun:stun.example.com:3478"]}, "1000600:abc")
    expected = hmac.new(b"shared", b"1000600:abc", hashlib.sha1).digest()
    assert turn.credential == base64.b64encode(expected).decode()
    assert turn.as_dict()["credential"] == turn.credential
    assert turn.credential not in repr(turn) and "shared" not in repr(TURN)


def test_each_url_has_a_link() -> None:
    """As RFC 9725, section 4.6, has it."""
    links = to_links(TURN.lend("abc", 0))
    assert links[0] == '<stun:stun.example.com:3478>; rel="ice-server"'
    assert links[1].startswith('<turn:turn.example.com:3478?transport=udp>; rel="ice-server"; username="600:abc"; ')
    assert links[1].endswith('; credential-type="password"') and len(links) == 3


def test_without_servers_nobody_is_asked() -> None:
    """No server of somebody else's is named, and no TURN server without a secret."""
    assert IceServers().lend("abc", 0) == []
    assert IceServers((), ("turn:turn.example.com",)).lend("abc", 0) == []
