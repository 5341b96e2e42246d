"""`$SYS` runs until it is stopped or cancelled, whichever comes, and also when both come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from protocols.mqtt.deliver.retained_sending import RetainedSending
from protocols.mqtt.settings import Settings
from protocols.mqtt.sys_topics import SysTopics
from queue_core.sessions.subscription import Subscription
from tests.support.until import PATIENCE_SECONDS, turns


def broker() -> Any:
    async def vhost(name: str) -> object:
        return SimpleNamespace(router=SimpleNamespace(route_topic=lambda topic: ()))

    return SimpleNamespace(
        settings=SimpleNamespace(vhost="/", sys_interval=3600),
        services=SimpleNamespace(
            vhost=vhost,
            counters=SimpleNamespace(dropped_overflow=0, committed_messages=0),
            sessions=SimpleNamespace(count=0, retained=SimpleNamespace(count=0)),
        ),
        connections=set(),
        counters=SimpleNamespace(
            messages_received=0,
            messages_sent=0,
            bytes_received=0,
            bytes_sent=0,
            dropped_too_large=0,
            refused_publishes=0,
        ),
    )


async def waiting(topics: SysTopics) -> asyncio.Task[None]:
    """Running, and done with its first round."""
    task = asyncio.create_task(topics.run())
    await turns(3)
    assert not task.done()
    return task


async def test_it_ends_when_it_is_stopped() -> None:
    topics = SysTopics(broker())
    task = await waiting(topics)
    topics.stop()
    await asyncio.wait_for(task, PATIENCE_SECONDS)


async def test_a_cancellation_is_not_swallowed_by_a_stop_at_the_same_time() -> None:
    topics = SysTopics(broker())
    task = await waiting(topics)
    topics.stop()
    await turns()  # the stop is under way
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("vhost", "hears"), [("/", True), ("tenant", False)])
async def test_its_values_are_in_the_listeners_own_virtual_host(vhost: str, hears: bool) -> None:
    """The figures of the whole gateway are not for everybody who has a corner of it."""
    sent: list[str] = []
    queue = SimpleNamespace(is_half_full=lambda: False)
    session: Any = SimpleNamespace(
        vhost=SimpleNamespace(
            name=vhost,
            publish_to=lambda message, *_: sent.append(message.topic),
            writer=SimpleNamespace(is_congested=False),
        ),
        live=queue,
        stored=None,
        is_attached=True,
        subscriptions={"$SYS/#": Subscription("$SYS/#")},
    )
    none: Any = None
    topics, settings = SysTopics(broker()), Settings(retained_messages=False)
    sending = RetainedSending(session, none, topics, settings, none, none)
    await sending.send(Subscription("$SYS/#"), 1)
    assert ("$SYS/broker/uptime" in sent) is hears
    assert bool(sent) is hears
