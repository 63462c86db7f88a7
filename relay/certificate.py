"""The certificate with which the relay itself serves `https` and `wss`, when no proxy in front of it does."""

from __future__ import annotations

import ssl
from asyncio import constants
from pathlib import Path

from storage.errors import SettingsError
from storage.settings import Settings

HANDSHAKE_TIMEOUT_S = 5.0
"""How long a client may take for the TLS handshake, like for the head of its first request."""

CERTIFICATE = "timbrelay_relay_tls_certificate"
KEY = "timbrelay_relay_tls_key"


def prepare_tls(settings: Settings) -> None:
    """Look at the files before anything is served; does nothing without the setting.

    Raises SettingsError that names the variable and the file, of which it shows nothing.
    """
    if settings.relay_tls_certificate == Path():
        return
    for variable, path in ((CERTIFICATE, settings.relay_tls_certificate), (KEY, settings.relay_tls_key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise SettingsError([(variable, f"{path} cannot be read ({error.strerror})")]) from None
    try:
        # An empty password, or OpenSSL would ask for that of an encrypted key on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.relay_tls_certificate, settings.relay_tls_key, password=""
        )
    except ssl.SSLError as error:
        reason = (error.reason or "no such PEM").replace("_", " ")
        problem = f"the certificate and its key, both unencrypted PEM, do not go together ({reason})"
        raise SettingsError([(CERTIFICATE, problem)]) from None
    # uvicorn has no setting for it, and a minute is too long for a place that nobody else can have.
    constants.SSL_HANDSHAKE_TIMEOUT = HANDSHAKE_TIMEOUT_S


def give_no_tickets(context: ssl.SSLContext) -> None:
    """Send no session tickets (RFC 8446, section 4.6.1) after the handshake.

    Clients that read in one thread and write in another lose their request now and then when the two meet on such a
    ticket: of Python's synchronous WebSocket clients about one connection in a thousand was never heard of again.
    """
    context.num_tickets = 0
