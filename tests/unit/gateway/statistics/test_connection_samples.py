"""The rates of a connection come from two looks at it."""

from __future__ import annotations

from gateway.statistics.connection_samples import Samples
from gateway.statistics.figures import CHANNEL_STATS
from protocols.connection_report import (
    ChannelReport,
    ConnectionReport,
    ConnectionState,
    Flow,
    Volume,
)


def report(published: int, ended: int = 0) -> ConnectionReport:
    return ConnectionReport(
        protocol="AMQP 0-9-1",
        user="ann",
        vhost="/",
        mechanism="PLAIN",
        client_name="",
        client_properties={},
        state=ConnectionState.RUNNING,
        channels=[ChannelReport(number=1, flow=Flow(published=published))],
        ended_flow=Flow(published=ended),
    )


def rate_of(rates: list[float], name: str) -> float:
    return rates[CHANNEL_STATS.index(name)]


def test_one_look_tells_no_rate() -> None:
    samples = Samples()
    samples.put(100.0, report(50), Volume(10, 20, 0))
    assert samples.received_rate == 0.0
    assert rate_of(samples.channel_rates(1), "publish") == 0.0


def test_two_looks_tell_the_rates_of_bytes_and_messages() -> None:
    samples = Samples()
    samples.put(100.0, report(50), Volume(1000, 0, 0))
    grown = samples.put(110.0, report(150), Volume(3000, 500, 0))
    assert samples.received_rate == 200.0
    assert samples.sent_rate == 50.0
    assert rate_of(samples.flow_rates(), "publish") == 10.0
    assert rate_of(samples.channel_rates(1), "publish") == 10.0
    assert grown[CHANNEL_STATS.index("publish")] == 100


def test_channels_that_were_closed_count_for_their_connection() -> None:
    samples = Samples()
    samples.put(100.0, report(50), Volume(0, 0, 0))
    grown = samples.put(110.0, report(0, ended=50), Volume(0, 0, 0))
    assert grown[CHANNEL_STATS.index("publish")] == 0
    assert rate_of(samples.flow_rates(), "publish") == 0.0


def test_a_channel_number_that_is_used_again_has_no_rate_below_zero() -> None:
    samples = Samples()
    samples.put(100.0, report(50), Volume(0, 0, 0))
    samples.put(110.0, report(2), Volume(0, 0, 0))
    assert rate_of(samples.channel_rates(1), "publish") == 0.0
