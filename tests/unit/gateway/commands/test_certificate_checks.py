"""Doctor tells of certificates that end."""

from __future__ import annotations

import ssl

import pytest

from gateway.commands.certificate_checks import DAY_SECONDS, end_of, lifetimes
from gateway.config.keys import Config, Listener, Listeners, Tls
from queue_core.store.operator.finding import Level
from tests import certificates

TLS = Tls(cert=certificates.SERVER, key=certificates.SERVER_KEY)
# A client that must show a certificate is none of the doctor's business.
STRICT = Tls(cert=TLS.cert, key=TLS.key, ca=certificates.AUTHORITY, verify_client=True)


def test_the_end_of_a_certificate_is_read_from_its_file() -> None:
    assert end_of(TLS) == ssl.cert_time_to_seconds("Oct 23 04:35:25 2126 GMT")
    assert end_of(STRICT) == end_of(TLS)


@pytest.mark.parametrize(
    ("days_left", "level", "words"),
    [
        (400, Level.OK, "the first ends in 400 days"),
        (14, Level.OK, "the first ends in 14 days"),
        (13, Level.WARN, "server.pem ends in 13 days"),
        (0, Level.WARN, "server.pem ends in 0 days"),
        (-1, Level.FAIL, "server.pem has ended 1 days ago"),
    ],
)
def test_a_certificate_is_named_before_it_ends_and_after(
    days_left: int, level: Level, words: str
) -> None:
    listeners = Listeners(amqp=Listener(port=5671, tls=STRICT))
    (finding,) = lifetimes(listeners, end_of(TLS) - (days_left + 0.5) * DAY_SECONDS)
    assert finding.level is level
    assert words in finding.what


def test_listeners_without_tls_have_no_certificate_to_speak_of() -> None:
    assert lifetimes(Config().listeners, 0.0) == []
