"""Doctor says what is open, and to whom."""

from __future__ import annotations

import pytest

from gateway.commands.access_checks import in_the_clear, strangers, unguarded
from gateway.config.keys import Auth, Config, Listener, Listeners
from queue_core.store.operator.finding import Level


@pytest.mark.parametrize(
    ("auth", "has_users", "expected"),
    [
        (Auth(), False, ["from this machine"] * 2),
        (Auth(), True, []),
        (Auth(allow_anonymous=True, guest=False), True, ["from everywhere"]),
        (Auth(allow_anonymous="loopback"), True, ["from this machine"]),
        (Auth(allow_anonymous=False, guest=False), False, []),
    ],
)
def test_whoever_may_come_in_unproven_is_named(
    auth: Auth, has_users: bool, expected: list[str]
) -> None:
    found = strangers(auth, has_users=has_users)
    open_ones = [finding for finding in found if finding.level is Level.WARN]
    assert len(open_ones) == len(expected)
    for finding, reach in zip(open_ones, expected, strict=True):
        assert reach in finding.what
        assert finding.way_out
    assert bool(open_ones) != any(finding.level is Level.OK for finding in found)


def test_a_listener_without_tls_on_the_network_is_named() -> None:
    listeners = Listeners(amqp=Listener(port=5672, host="0.0.0.0"))
    (finding,) = in_the_clear(Config(listeners=listeners))
    assert "listener amqp on 0.0.0.0 has no TLS" in finding.what
    assert in_the_clear(Config()) == []


def test_a_listener_that_keeps_the_gateway_from_starting_fails() -> None:
    config = Config(listeners=Listeners(amqp=Listener(port=5672, host="0.0.0.0")))
    (finding,) = unguarded(config, has_users=False)
    assert finding.level is Level.FAIL
    assert "listeners.amqp.host: 0.0.0.0 is reachable from other machines" in finding.what
    assert unguarded(config, has_users=True) == []
    assert unguarded(Config(), has_users=False) == []
