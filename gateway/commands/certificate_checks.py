"""The checks of `howdah doctor` on listeners' certificates: warns before one expires.

The files have been read by gateway.tls; a handshake in memory tells the dates in them.
"""

from __future__ import annotations

import ssl
from typing import Final

from gateway.config.keys import Listeners, Tls
from queue_core.store.operator.finding import Finding, fail, ok, warn

DAY_SECONDS: Final = 86_400
SOON_DAYS: Final = 14
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for.
NO_CHECK_TIME: Final = 0x20_0000
RENEW: Final = "renew it, and send the gateway SIGHUP: it reads the new one without a restart"


def lifetimes(listeners: Listeners, now: float) -> list[Finding]:
    """Finds each certificate that has expired or soon will; all others share one finding."""
    findings, days_left = [], []
    for name, listener in listeners.enabled().items():
        if listener.tls is None:
            continue
        days = int((end_of(listener.tls) - now) // DAY_SECONDS)
        what = f"listeners.{name}.tls.cert: {listener.tls.cert}"
        if days < 0:
            findings.append(fail(f"{what} has ended {-days} days ago: clients refuse it", RENEW))
        elif days < SOON_DAYS:
            findings.append(warn(f"{what} ends in {days} days", RENEW))
        else:
            days_left.append(days)
    if days_left:
        findings += ok(f"certificates of listeners: the first ends in {min(days_left)} days")
    return findings


def end_of(tls: Tls) -> float:
    """Returns the Unix time after which clients refuse the certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tls.cert, tls.key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # Only of a certificate that it trusts does Python tell the content: this one, by itself.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    client.load_verify_locations(tls.cert)
    shown = _shown(server, client)
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl._PeerCertRetDictType:
    """Returns the certificate that a client sees, by a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    seeing = client.wrap_bio(to_client, to_server)
    showing = server.wrap_bio(to_server, to_client, server_side=True)
    is_done = False
    while not is_done:
        try:
            seeing.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            try:
                showing.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = seeing.getpeercert()
    assert shown is not None  # a client that verifies has one
    return shown
