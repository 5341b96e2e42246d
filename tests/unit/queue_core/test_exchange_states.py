"""Memories of exchanges, on queues in memory."""

from __future__ import annotations

import pytest

from queue_core.message.message import Death, Message
from queue_core.queues.spec import QueueSpec
from queue_core.routing import router
from queue_core.routing.bindings import ExchangeRef
from queue_core.routing.exchanges import ExchangeKind, ExchangeSpec
from tests.unit.queue_core.session_world import World


def with_keys(body: bytes, *keys: str) -> Message:
    """A message that was published with these keys; a dead letter says so without a protocol."""
    death = Death(queue="q", reason="expired", time=0.0, exchange="h", routing_keys=keys)
    return Message(body, "h", routing_key=keys[0], deaths=(death,))


async def test_a_message_that_is_too_dear_to_replay_keeps_no_binding_from_being_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vhost = World().vhost
    for name, kind in (("h", ExchangeKind.RECENT_HISTORY), ("y", ExchangeKind.TOPIC)):
        await vhost.declare_exchange(ExchangeSpec(name, kind, durable=False))
    queue = await vhost.declare_queue(QueueSpec.parse("q", durable=False))
    await vhost.bind("y", queue, "#")
    for message in (with_keys(b"1", "a"), with_keys(b"2", "a", "b", "c"), with_keys(b"3", "a")):
        vhost.publish(message)
    monkeypatch.setattr(router, "MAX_COMPARISONS", 2)
    await vhost.bind("h", ExchangeRef("y"))
    assert [entry.message.body for entry in queue.peek(0, 10)] == [b"1", b"3"]
    assert "'h'" in caplog.text
    vhost.publish(with_keys(b"4", "a"))
    assert queue.counts().ready == 3
