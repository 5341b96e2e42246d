"""Reports TLS handshakes that fail: a line in the log and a counter.

The event loop ends such a connection before there is a protocol for it, without a word. The line
names the listener, the peer's address and the reason.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

NOT_TLS: Final = "the client does not speak TLS; have it do so, or give it a listener without tls"
NOT_TRUSTED: Final = (
    "the client does not trust this certificate; give it the authority that signed tls.cert"
)

# By OpenSSL's names. What is not here is told in its own words.
REASONS: Final = {
    "HTTP_REQUEST": NOT_TLS,
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "RECORD_LAYER_FAILURE": NOT_TLS,  # the same, from OpenSSL 3.2 on
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate; tls.verify_client "
    "asks for one that tls.ca signed",
    "TLSV1_ALERT_UNKNOWN_CA": NOT_TRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": NOT_TRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": NOT_TRUSTED,
    "UNSUPPORTED_PROTOCOL": "the client's TLS is older than 1.2",
}


@dataclass(slots=True)
class TlsCounters:
    failed_handshakes: int = 0


def tell_failure(name: str, peer: str, error: ssl.SSLError, counters: TlsCounters) -> None:
    """Counts and logs a handshake that failed, with the listener's name and the peer's address."""
    counters.failed_handshakes += 1
    log.warning("TLS handshake of %s on listener %s failed: %s", peer, name, _why(error))


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the client's certificate is not one that tls.ca vouches for: {error.verify_message}"
        )
    return REASONS.get(error.reason or "", str(error))
