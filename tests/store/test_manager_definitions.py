"""Definitions that outlive the process, and declarations that must not change them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from secrets import token_hex
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from queue_core.errors import (
    CoreError,
    ExchangeNotFound,
    InvalidArgument,
    LimitExceeded,
    NotEquivalent,
    QueueInUse,
    QueueNotEmpty,
    QueueNotFound,
    ResourceLocked,
    VhostNotFound,
)
from queue_core.message.message import Message, Properties, Scalar
from queue_core.message.values_as_text import text_of
from queue_core.outcomes import Published
from queue_core.queues.spec import QueueSpec
from queue_core.routing.bindings import BindingLimits, ExchangeRef
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.store.tables.definitions import DefinitionStore
from queue_core.store.tables.vhosts import Vhosts
from tests.support.managers import House, bodies


async def test_exchanges_queues_and_bindings_are_there_after_a_crash(house: House) -> None:
    vhost = house.vhost
    await vhost.declare_exchange(ExchangeSpec.parse("in", "topic"))
    await vhost.declare_exchange(ExchangeSpec.parse("inner", "headers"))
    await vhost.declare_exchange(
        ExchangeSpec.parse("lost", "direct", {"alternate-exchange": "amq.fanout"})
    )
    await house.queue("by-key", max_length=7)
    await house.queue("by-header")
    await house.queue("else")
    await vhost.bind("in", vhost.queue("by-key"), "a.*.c")
    await vhost.bind("in", ExchangeRef("inner"), "#")
    await vhost.bind("inner", vhost.queue("by-header"), "", {"x-match": "all", "kind": "x"})
    await vhost.bind("amq.fanout", vhost.queue("else"))
    await house.crash_and_reopen()
    vhost = house.vhost
    headed = Properties(headers=(("kind", "x"),))
    vhost.publish(Message(b"1", "in", routing_key="a.b.c"))
    vhost.publish(Message(b"2", "in", routing_key="z", properties=headed))
    vhost.publish(Message(b"3", "lost", routing_key="z"))
    await house.flushed()
    assert bodies(await house.drain("by-key")) == [b"1"]
    assert bodies(await house.drain("by-header")) == [b"2"]
    assert bodies(await house.drain("else")) == [b"3"]
    spec = house.vhost.queue("by-key").spec
    assert (spec.max_length, dict(spec.arguments)) == (7, {"x-max-length": 7})


WANTED = (
    b"\xff\x00",
    datetime(2026, 11, 16, 12, tzinfo=UTC),
    Decimal("1.50"),
    "a\0b",
    float("inf"),
    UUID(int=7),
)


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: type(wanted).__name__)
async def test_a_binding_wants_the_same_values_after_a_crash(house: House, wanted: Scalar) -> None:
    arguments = {"x-match": "all", "wanted": wanted}
    await house.vhost.bind("amq.headers", await house.queue(), "", arguments)

    def send(value: Scalar) -> Published:
        properties = Properties(headers=(("wanted", value),))
        return house.vhost.publish(Message(b"", "amq.headers", properties=properties))

    assert send(wanted) is Published.PENDING
    await house.crash_and_reopen()
    assert send(wanted) is Published.PENDING
    assert send(text_of(wanted) if not isinstance(wanted, str) else "a") is Published.NOWHERE
    assert await house.vhost.unbind("amq.headers", house.vhost.queue("q"), "", arguments)
    await house.crash_and_reopen()
    assert send(wanted) is Published.NOWHERE


async def test_what_was_removed_stays_removed(house: House) -> None:
    vhost = house.vhost
    await vhost.declare_exchange(ExchangeSpec.parse("gone", "fanout"))
    await vhost.declare_exchange(ExchangeSpec.parse("kept", "direct"))
    await house.queue("gone")
    await house.queue("kept")
    await vhost.bind("gone", vhost.queue("kept"))
    await vhost.bind("kept", vhost.queue("kept"), "k")
    await vhost.bind("kept", vhost.queue("kept"), "l")
    await vhost.bind("kept", vhost.queue("gone"), "k")
    await vhost.unbind("kept", vhost.queue("kept"), "k")
    await vhost.delete_queue("gone")
    await vhost.delete_exchange("gone")
    await house.crash_and_reopen()
    with pytest.raises(QueueNotFound):
        house.vhost.queue("gone")
    with pytest.raises(ExchangeNotFound):
        house.vhost.publish(Message(b"1", "gone", routing_key=""))
    assert house.vhost.publish(Message(b"1", "kept", routing_key="k")) is Published.NOWHERE
    assert house.vhost.publish(Message(b"1", "kept", routing_key="l")) is Published.PENDING


async def test_what_is_not_durable_is_gone_after_a_restart(house: House) -> None:
    vhost = house.vhost
    await vhost.declare_exchange(ExchangeSpec.parse("brief", "fanout", durable=False))
    await house.ephemeral("e")
    await house.queue("q")
    await vhost.bind("brief", vhost.queue("q"))
    await vhost.bind("amq.fanout", vhost.queue("e"))
    await house.reopen()
    assert list(house.vhost.queues) == ["q"]
    with pytest.raises(ExchangeNotFound):
        house.vhost.publish(Message(b"1", "brief", routing_key=""))
    assert house.vhost.publish(Message(b"1", "amq.fanout", routing_key="")) is Published.NOWHERE


async def test_a_queue_made_again_under_its_old_name_is_empty(house: House) -> None:
    await house.queue()
    await house.store("q", b"old")
    await house.vhost.delete_queue("q")
    await house.queue()
    await house.store("q", b"new")
    await house.crash_and_reopen()
    assert bodies(await house.drain()) == [b"new"]


OTHER_WORDS: list[tuple[dict[str, object], dict[str, object]]] = [
    ({}, {"x-max-length": 5}),
    ({"x-max-length": 5}, {}),
    ({"x-max-length": 5}, {"x-max-length": 6}),
    ({}, {"x-queue-type": "stream"}),
    ({}, {"x-queue-type": "quorum"}),
    ({"x-queue-type": "quorum"}, {"x-queue-type": "classic"}),
]


@pytest.mark.parametrize(("first", "second"), OTHER_WORDS)
async def test_a_queue_declared_again_with_other_words_is_refused_and_unchanged(
    house: House, first: dict[str, object], second: dict[str, object]
) -> None:
    spec = QueueSpec.parse("q", first)
    await house.vhost.declare_queue(spec)
    await house.crash_and_reopen()
    with pytest.raises(NotEquivalent, match="queue 'q' exists with"):
        await house.vhost.declare_queue(QueueSpec.parse("q", second))
    queue = await house.vhost.declare_queue(spec)
    assert dict(queue.spec.arguments) == first


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (QueueSpec.parse("q", durable=False), NotEquivalent),
        (QueueSpec.parse("q", exclusive=True), ResourceLocked),
        (QueueSpec.parse("q", auto_delete=True), NotEquivalent),
    ],
)
async def test_a_queue_declared_again_of_another_nature_is_refused(
    house: House, other: QueueSpec, kind: type[CoreError]
) -> None:
    await house.queue()
    with pytest.raises(kind):
        await house.vhost.declare_queue(other)


async def test_a_deletion_may_ask_for_an_unused_or_empty_queue(house: House) -> None:
    await house.queue()
    await house.store("q", b"1", b"2")
    inbox, consumer = await house.consume("q", credit=1)
    await inbox.has(1)
    with pytest.raises(QueueInUse, match="1 consumer"):
        await house.vhost.delete_queue("q", if_unused=True)
    with pytest.raises(QueueNotEmpty):
        await house.vhost.delete_queue("q", if_empty=True)
    assert await house.vhost.delete_queue("q") == 1
    assert inbox.cancelled is not None
    assert consumer.is_closed
    house.vhost.settle(inbox.deliveries)
    await house.flushed()


ODD_NAMES = ["with\0nul", "half \ud800"]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_name_that_the_database_cannot_hold_is_refused_as_a_bad_argument(
    house: House, name: str
) -> None:
    queue = await house.queue()
    with pytest.raises(InvalidArgument):
        await house.vhost.declare_queue(QueueSpec.parse(name))
    with pytest.raises(InvalidArgument):
        await house.vhost.declare_exchange(ExchangeSpec.parse(name, "direct"))
    with pytest.raises(InvalidArgument):
        await house.vhost.bind("amq.direct", queue, name)
    with pytest.raises(InvalidArgument):
        await house.vhost.bind("amq.headers", queue, "", {name: "h"})
    with pytest.raises(InvalidArgument):
        await house.queue("d", dead_letter_exchange=name)
    assert name not in house.vhost.queues
    assert house.vhost.publish(Message(b"", "amq.direct", routing_key=name)) is Published.NOWHERE
    await house.crash_and_reopen()
    assert list(house.vhost.queues) == ["q"]


async def test_a_name_that_the_database_cannot_index_is_refused_as_a_bad_argument(
    house: House,
) -> None:
    longest = token_hex(1000)
    await house.vhost.declare_queue(QueueSpec.parse(longest))
    with pytest.raises(InvalidArgument, match="has 2001 bytes, and may have 2000"):
        await house.vhost.declare_queue(QueueSpec.parse(f"{longest}x"))
    await house.crash_and_reopen()
    assert list(house.vhost.queues) == [longest]


async def test_the_owner_of_an_exclusive_queue_takes_it_along(house: House) -> None:
    owner, other = object(), object()
    spec = QueueSpec.parse("mine", exclusive=True)
    await house.vhost.declare_queue(spec, owner=owner)
    with pytest.raises(CoreError, match="exclusive to another connection"):
        house.vhost.queue("mine", other)
    house.vhost.release_owner(owner)
    assert "mine" not in house.vhost.queues


async def test_an_auto_delete_queue_goes_with_its_last_consumer(house: House) -> None:
    await house.vhost.declare_queue(QueueSpec.parse("a", auto_delete=True))
    _, first = await house.consume("a")
    _, second = await house.consume("a")
    house.vhost.end_consumer(first, None)
    assert "a" in house.vhost.queues
    house.vhost.end_consumer(second, None)
    await house.flushed()
    assert "a" not in house.vhost.queues


async def test_vhosts_have_names_of_their_own(house: House, db: asyncpg.Connection) -> None:
    await house.manager.add_vhost("other")
    other = await house.manager.vhost("other")
    await other.declare_queue(QueueSpec.parse("q"))
    await house.queue("q", max_length=1)
    other.publish(Message(b"1", "", routing_key="q"))
    await house.flushed()
    await house.crash_and_reopen()
    other = await house.manager.vhost("other")
    assert other.queue("q").counts().ready == 1
    assert house.vhost.queue("q").counts().ready == 0


async def test_virtual_hosts_that_operators_make_and_remove_are_noticed(house: House) -> None:
    stored = Vhosts(house.manager._database.engine)
    assert await stored.add("new")
    assert not await stored.add("new")
    await house.manager.refresh_vhosts()
    vhost = await house.manager.vhost("new")
    await vhost.declare_queue(QueueSpec.parse("live", {}, durable=False))
    queue = await vhost.declare_queue(QueueSpec.parse("kept", {}))
    with pytest.raises(QueueNotEmpty, match="1 durable queues"):
        await stored.remove("new")
    await vhost.delete_queue(queue.name)
    await stored.remove("new")
    await house.manager.refresh_vhosts()
    with pytest.raises(VhostNotFound, match="howdah vhost add"):
        await house.manager.vhost("new")
    assert not vhost.queues
    await house.reopen()
    assert set(house.manager.vhosts) == {"/"}


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
async def test_a_virtual_host_has_a_name_that_every_protocol_can_say(
    house: House, name: str
) -> None:
    with pytest.raises(InvalidArgument, match="1 to 255 bytes"):
        await Vhosts(house.manager._database.engine).add(name)


@pytest.mark.parametrize(
    ("by_hand", "what"),
    [
        (
            "DELETE FROM howdah.queue WHERE name = 'gone'",
            "to queue 'gone' with key 'a' is left out",
        ),
        ("DELETE FROM howdah.exchange WHERE name = 'x'", "from exchange 'x' to queue 'gone'"),
    ],
)
async def test_a_binding_whose_end_was_deleted_by_hand_is_left_out_and_named(
    house: House,
    db: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
    by_hand: str,
    what: str,
) -> None:
    vhost = house.vhost
    await vhost.declare_exchange(ExchangeSpec.parse("x", "direct"))
    for name in ("gone", "kept"):
        await vhost.bind("x" if name == "gone" else "amq.direct", await house.queue(name), "a")
    await house.close()
    await db.execute(by_hand)
    number = await db.fetchval("SELECT id FROM howdah.binding WHERE destination = 'gone'")
    await house.open()
    assert what in caplog.text
    assert f"DELETE FROM howdah.binding WHERE id = {number}" in caplog.text
    house.vhost.publish(Message(b"1", "amq.direct", routing_key="a"))
    await house.flushed()
    assert bodies(await house.drain("kept")) == [b"1"]


@pytest.mark.parametrize(
    ("by_hand", "what"),
    [
        ("queue SET arguments = '{\"x-max-length\": -1}'", "UPDATE howdah.queue SET arguments"),
        ("exchange SET kind = 'odd'", "put the row 'x' of virtual host '/' right"),
    ],
)
async def test_a_definition_that_was_changed_by_hand_to_nonsense_is_named_with_its_place(
    house: House, db: asyncpg.Connection, by_hand: str, what: str
) -> None:
    await house.vhost.declare_exchange(ExchangeSpec.parse("x", "direct"))
    await house.queue()
    await house.close()
    await db.execute(f"UPDATE howdah.{by_hand}")
    engine = create_async_engine(house.url.replace("postgresql://", "postgresql+asyncpg://"))
    with pytest.raises(InvalidArgument, match="changed by hand, and cannot be used") as refused:
        await DefinitionStore(engine).load()
    await engine.dispose()
    assert what in str(refused.value)


async def test_a_kind_that_was_changed_by_hand_is_named(
    house: House, db: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await house.queue()
    await house.close()
    await db.execute("UPDATE howdah.queue SET kind = 'stream'")
    await house.open()
    assert "queue 'q' is a classic by its arguments, which count" in caplog.text


async def test_stored_bindings_beyond_a_limit_that_was_lowered_stay_and_no_more_come(
    house: House,
) -> None:
    queue = await house.queue("q")
    for number in range(3):
        await house.vhost.bind("amq.headers", queue, "", {"n": number})
    limits = BindingLimits(from_one_headers=2)
    house.settings = replace(house.settings, bindings=limits)
    await house.crash_and_reopen()
    bound = [each for each in house.vhost.router.bindings() if each.source == "amq.headers"]
    assert len(bound) == 3
    with pytest.raises(LimitExceeded):
        await house.vhost.bind("amq.headers", house.vhost.queue("q"), "", {"n": 9})
