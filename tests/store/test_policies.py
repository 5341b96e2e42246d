"""Policies on live queues and exchanges of every kind: set in SQL, in force when confirmed, and
still there after a restart."""

from __future__ import annotations

import json

import asyncpg
import pytest

from queue_core.errors import LimitExceeded, NotEquivalent, QueueNotFound
from queue_core.message.message import Message
from queue_core.outcomes import FAILED, Published
from queue_core.policies.policy import Policy
from queue_core.queues.classic import ClassicQueue
from queue_core.queues.queue import Queue
from queue_core.queues.spec import QueueKind, QueueSpec
from queue_core.routing.exchanges import ExchangeSpec
from queue_core.store.tables.policies import Policies
from queue_core.store.tables.rights_changes import Confirmation, confirmed_on
from tests.support.managers import KINDS, House, bodies, declare

SET = "SELECT howdah.set_policy($1, $2, $3::text::jsonb, $4, $5, operator => $6)"


class Operator:
    """Sets policies in SQL, and returns when they are in force."""

    def __init__(self, db: asyncpg.Connection) -> None:
        self._db = db

    async def set_policy(
        self,
        definition: str,
        pattern: str = "",
        name: str = "p",
        apply_to: str = "all",
        priority: int = 0,
        *,
        operator: bool = False,
    ) -> None:
        await self._db.execute(SET, name, pattern, definition, apply_to, priority, operator)
        await self.in_force()

    async def run(self, statement: str, *arguments: object) -> None:
        await self._db.execute(statement, *arguments)
        await self.in_force()

    async def in_force(self) -> None:
        assert await confirmed_on(self._db) is Confirmation.IN_FORCE


@pytest.fixture
async def operator(house: House, db: asyncpg.Connection) -> Operator:
    return Operator(db)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_that_is_too_long_for_a_new_policy_loses_its_oldest_at_once(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind)
    await house.store("q", *numbered(1000))  # more than is dropped in one turn of the loop
    await operator.set_policy('{"max-length": 3}')
    await house.until(lambda: house.vhost.queue("q").counts().ready == 3)
    assert bodies(await house.drain()) == [b"997", b"998", b"999"]
    await house.store("q", *numbered(5))
    await operator.run("SELECT howdah.clear_policy('p')")
    await house.store("q", *numbered(5))
    assert len(await house.drain()) == 8


@pytest.mark.parametrize("kind", KINDS)
async def test_a_policy_may_refuse_what_is_too_much(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind)
    await operator.set_policy('{"max-length": 1, "overflow": "reject-publish"}')
    await house.store("q", b"1")
    assert house.put("q", b"2") == [Published.REFUSED]
    assert house.vhost.queue("q").spec.policy.policy == "p"
    await operator.set_policy('{"max-length": 2, "overflow": "reject-publish"}')
    assert house.put("q", b"2") != [Published.REFUSED]


async def test_bytes_on_their_way_count_from_the_moment_that_a_policy_limits_them(
    house: House, operator: Operator
) -> None:
    queue = await house.queue()
    house.put("q", b"x" * 100)  # not committed yet when the policy comes
    await operator.set_policy('{"max-length-bytes": 1000, "overflow": "reject-publish"}')
    await house.store("q", b"x" * 800)
    assert queue.log.pending_bytes == 0
    assert house.put("q", b"x" * 200) != [Published.REFUSED]
    assert house.put("q", b"x") == [Published.REFUSED]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_policy_buries_goes_where_the_policy_says(
    house: House, operator: Operator, kind: str
) -> None:
    await house.queue("dead")
    await declare(house, kind)
    await operator.set_policy(
        '{"message-ttl": 1000, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}',
        "^q$",
    )
    await house.store("q", b"late")
    await house.later(2)
    assert bodies(await house.drain("dead")) == [b"late"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_time_to_live_is_for_what_comes_from_then_on(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind)
    await house.store("q", b"before")
    await operator.set_policy('{"message-ttl": 1000}')
    await house.store("q", b"after")
    assert (await house.vhost.browse("q", 0, 9))[0].expires_at is None
    await house.later(2)
    assert bodies(await house.drain()) == [b"before"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unused_queue_goes_when_a_policy_says_so(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind, expires=3_600_000)
    await operator.set_policy('{"expires": 5000}')
    await house.until(lambda: "q" not in house.vhost.queues)
    with pytest.raises(QueueNotFound):
        house.vhost.queue("q")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_policy_limits_how_often_a_delivery_may_fail(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind)
    await operator.set_policy('{"delivery-limit": 1}', apply_to="classic_queues")
    await house.store("q", b"bad")
    inbox, _ = await house.consume("q", FAILED)
    await inbox.has(2)
    await house.flushed()
    assert house.vhost.queue("q").counts().waiting == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_consumer_that_has_a_message_must_settle_it_once_a_policy_says_when(
    house: House, operator: Operator, kind: str
) -> None:
    await declare(house, kind)
    await house.store("q", b"slow")
    inbox, _ = await house.consume("q")
    await inbox.has(1)
    await operator.set_policy('{"consumer-timeout": 1000}')
    await house.later(2)
    assert (await inbox.has(2))[1].message.body == b"slow"


async def test_a_stream_forgets_by_its_policy(house: House, operator: Operator) -> None:
    stream = await house.stream()
    await operator.set_policy('{"max-age": "10s", "stream-max-segment-size-bytes": 65536}')
    assert (stream.spec.max_age, stream.log.segment_bytes) == (10.0, 65536)
    for _ in range(4):
        await house.store("s", b"x" * 70_000)
    await house.later(60)
    await house.upkeep()
    assert stream.counts().ready < 4


async def test_a_stream_is_left_alone_by_a_policy_that_streams_do_not_support(
    house: House, operator: Operator
) -> None:
    stream = await house.stream()
    await operator.set_policy('{"max-length": 1, "max-age": "1s"}')
    assert (stream.spec.max_age, stream.spec.max_length) == (None, None)
    await operator.set_policy('{"max-length": 1, "max-age": "1s"}', apply_to="streams")
    assert (stream.spec.max_age, stream.spec.max_length) == (1.0, 1)


async def test_an_exchange_sends_what_matches_nothing_where_its_policy_says(
    house: House, operator: Operator
) -> None:
    vhost = house.vhost
    lost = await house.queue("lost")
    await vhost.declare_exchange(ExchangeSpec.parse("late", "fanout"))
    await vhost.bind("late", lost)
    message = Message(b"1", "amq.direct", routing_key="nobody")
    assert vhost.publish(message) is Published.NOWHERE
    await operator.set_policy('{"alternate-exchange": "late"}', "^(amq.direct|new)$")
    assert vhost.publish(message) is Published.PENDING
    await vhost.declare_exchange(ExchangeSpec.parse("new", "direct"))
    assert vhost.publish(Message(b"2", "new", routing_key="nobody")) is Published.PENDING
    await operator.run("SELECT howdah.clear_policy('p')")
    assert vhost.publish(message) is Published.NOWHERE
    await house.flushed()
    assert bodies(await house.drain("lost")) == [b"1", b"2"]


async def test_an_operator_policy_is_the_stricter_one(house: House, operator: Operator) -> None:
    queue = await house.queue("q", max_length=50)
    await operator.set_policy('{"max-length": 100, "message-ttl": 1000}')
    await operator.set_policy('{"max-length": 10, "expires": 9000}', name="o", operator=True)
    policy = queue.spec.policy
    assert (policy.policy, policy.operator_policy) == ("p", "o")
    assert policy.definition == {"max-length": 10, "message-ttl": 1000, "expires": 9000}
    assert (queue.spec.max_length, queue.spec.message_ttl) == (10, 1.0)


async def test_a_queue_under_a_policy_is_declared_again_with_its_own_words(
    house: House, operator: Operator
) -> None:
    await house.queue("q", max_length=50)
    await operator.set_policy('{"max-length": 10, "overflow": "reject-publish"}')
    await house.queue("q", max_length=50)
    with pytest.raises(NotEquivalent):
        await house.queue("q", max_length=10)


async def test_policies_are_there_after_a_restart_and_queues_that_come_later_get_them(
    house: House, operator: Operator
) -> None:
    await house.queue()
    await house.store("q", *numbered(5))
    await operator.set_policy('{"max-length": 10}')
    await house.crash_and_reopen()
    await house.store("q", *numbered(10))
    assert bodies(await house.drain()) == numbered(10)
    for queue in (await house.queue("q2"), await house.ephemeral("e")):
        assert queue.spec.max_length == 10


async def test_a_limit_of_bytes_counts_what_was_there_before_a_restart(
    house: House, operator: Operator
) -> None:
    await house.queue()
    await house.store("q", *(b"%03d" % i + b"x" * 97 for i in range(100)))
    inbox, _ = await house.consume("q", credit=10, replenish=False)
    await inbox.has(10)
    await house.reopen()
    queue = house.vhost.queue("q")
    inbox, _ = await house.consume("q", credit=10, replenish=False)
    await inbox.has(10)
    await operator.set_policy('{"max-length-bytes": 1000}')
    await house.until(lambda: queue.counts().ready == 10)
    await house.crash_and_reopen()  # the policy is older than the queue now
    await house.until(lambda: house.vhost.queue("q").counts().ready == 10)
    assert isinstance(queue, ClassicQueue)
    assert [body[:3] for body in bodies(await house.drain())][-1] == b"099"


async def test_queues_of_sessions_are_queues_like_others_to_a_policy(
    house: House, operator: Operator
) -> None:
    stored = await house.vhost.declare_queue(QueueSpec.parse("$session/ada"), inside=True)
    await operator.set_policy('{"max-length": 7, "expires": 1000}')
    assert (stored.spec.max_length, stored.spec.expires) == (7, None)


async def test_what_an_exchange_remembers_by_is_no_queue_to_a_policy(
    house: House, operator: Operator
) -> None:
    spec = ExchangeSpec.parse("recent", "x-recent-history", {"x-recent-history-length": 5})
    await house.vhost.declare_exchange(spec)
    await operator.set_policy('{"max-length": 1}')
    for body in numbered(3):
        house.vhost.publish(Message(body, "recent"))
    await house.vhost.bind("recent", await house.queue("q", max_length=9))
    await operator.run("SELECT howdah.clear_policy('p')")
    await house.queue("q2")
    await house.vhost.bind("recent", house.vhost.queue("q2"))
    await house.flushed()
    assert bodies(await house.drain("q2")) == numbered(3)


async def test_a_row_written_by_hand_that_makes_no_sense_is_told_and_left_out(
    house: House, operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await house.queue()
    await operator.run(
        "INSERT INTO howdah.policy (vhost, name, pattern, priority, definition) VALUES "
        "('/', 'bad', '(', 9, '{\"max-length\": 1}'), ('/', 'good', '', 0, '{\"max-length\": 2}')"
    )
    assert queue.spec.max_length == 2
    assert "policy 'bad': pattern '(' is not a regular expression" in caplog.text


async def test_the_view_and_the_gateway_say_the_same_of_every_queue(
    house: House, operator: Operator, db: asyncpg.Connection
) -> None:
    await house.queue("orders", max_length=50)
    await house.queue("mail", message_ttl=100, delivery_limit=-1)
    await house.queue("quorum", queue_type="quorum")
    await house.stream("log", max_age="7D", max_length_bytes=10**9)
    await house.vhost.declare_queue(QueueSpec.parse("$session/ada"), inside=True)
    await operator.set_policy('{"max-length": 60, "expires": 9000}', name="all", priority=-1)
    await operator.set_policy('{"max-length": 40, "message-ttl": 5000}', "^(o|m|q)", "omq")
    await operator.set_policy(
        '{"delivery-limit": 4, "overflow": "drop-head"}', "^m", "m", "classic_queues", 5
    )
    await operator.set_policy('{"max-age": "1h", "max-length-bytes": 5000}', "", "s", "streams")
    await operator.set_policy('{"max-length": 45}', "^q|^o", "limit", operator=True)
    rows = await db.fetch("SELECT * FROM howdah.queue_policy ORDER BY queue")
    assert len(rows) == 5
    for row in rows:
        spec = house.vhost.queue(row["queue"]).spec
        assert (row["policy"], row["operator_policy"]) == (
            spec.policy.policy,
            spec.policy.operator_policy,
        )
        assert json.loads(row["definition"]) == spec.policy.definition
        effective = json.loads(row["effective"])
        again = QueueSpec.parse(
            row["queue"],
            {"x-queue-type": row["queue_type"]} | {f"x-{k}": v for k, v in effective.items()},
        )
        for field in ("max_length", "max_bytes", "message_ttl", "expires", "max_age"):
            assert getattr(again, field) == getattr(spec, field), (row["queue"], field)
        assert (again.delivery_limit, again.overflow) == (spec.delivery_limit, spec.overflow)


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SELECT howdah.set_policy('p', '', '{}')", "22023"),
        ("SELECT howdah.set_policy('p', '', '[]')", "22023"),
        ("SELECT howdah.set_policy('p', '', '{\"colour\": 1}')", "22023"),
        ("SELECT howdah.set_policy('p', '', '{\"max-length\": -1}')", "22023"),
        ("SELECT howdah.set_policy('p', '', '{\"max-length\": 1.5}')", "22023"),
        ("SELECT howdah.set_policy('p', '', '{\"max-age\": \"soon\"}')", "22023"),
        ("SELECT howdah.set_policy('p', '', '{\"max-age\": \"1D\"}', operator => true)", "22023"),
        ("SELECT howdah.set_policy('', '', '{\"max-length\": 1}')", "22023"),
        ("SELECT howdah.set_policy('p', '(', '{\"max-length\": 1}')", "2201B"),
        ("SELECT howdah.set_policy('p', '', '{\"max-length\": 1}', 'topics')", "23514"),
        ("SELECT howdah.set_policy('p', '', '{\"max-length\": 1}', vhost => 'no')", "42704"),
        ("SELECT howdah.set_vhost_limit('max-topics', 1)", "22023"),
        ("SELECT howdah.set_vhost_limit('max-queues', 1, 'no')", "42704"),
        ("SELECT howdah.set_user_limit('nobody', 'max-channels', 1)", "42704"),
        ("SELECT howdah.set_user_limit('nobody', 'max-topics', 1)", "22023"),
        ("SELECT howdah.describe_vhost('/', default_queue_type => 'fast')", "23514"),
        ("SELECT howdah.set_parameter('shovel', 's', '{}', 'no')", "42704"),
    ],
)
async def test_sql_refuses_what_makes_no_sense(
    db: asyncpg.Connection, statement: str, state: str
) -> None:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await db.execute(statement)
    assert refused.value.sqlstate == state


async def test_parameters_are_kept_as_they_are_given(db: asyncpg.Connection) -> None:
    await db.execute("SELECT howdah.set_parameter('shovel', 's', '{\"src-uri\": \"amqp://\"}')")
    await db.execute("SELECT howdah.set_parameter('shovel', 's', '{\"src-uri\": \"amqps://\"}')")
    await db.execute("SELECT howdah.set_global_parameter('cluster_name', '\"plant\"')")
    assert await db.fetchval("SELECT value ->> 'src-uri' FROM howdah.parameter") == "amqps://"
    assert await db.fetchval("SELECT value #>> '{}' FROM howdah.global_parameter") == "plant"
    assert await db.fetchval("SELECT howdah.clear_parameter('shovel', 's')") is True
    assert await db.fetchval("SELECT howdah.clear_parameter('shovel', 's')") is False
    assert await db.fetchval("SELECT howdah.clear_global_parameter('cluster_name')") is True


async def test_policies_of_the_table_are_those_that_were_put(
    house: House, operator: Operator
) -> None:
    stored = Policies(house.manager._database.engine)
    policy = Policy.parse("p", "^q", {"max-length": 1}, apply_to="queues", priority=3)
    assert await stored.put("/", policy) is True
    assert await stored.put("/", policy) is False
    assert [each.policy for each in await stored.all("/", is_operator=False)] == [policy]
    assert await stored.all("/", is_operator=True) == []
    assert await stored.remove("/", "p", is_operator=True) is False
    assert await stored.remove("/", "p") is True


# --------------------------------------------------------------------- settings of virtual hosts


async def test_a_queue_without_a_type_has_the_one_that_its_virtual_host_gives(
    house: House, operator: Operator
) -> None:
    await house.queue("before")
    await operator.run("SELECT howdah.describe_vhost('/', default_queue_type => 'stream')")
    queue = await house.vhost.declare_queue(QueueSpec.parse("after"))
    assert queue.spec.kind is QueueKind.STREAM
    await house.queue("before")  # as it was made
    assert (await house.vhost.declare_queue(QueueSpec.parse("after"))) is queue
    classic = await house.vhost.declare_queue(QueueSpec.parse("c", {"x-queue-type": "classic"}))
    assert classic.spec.kind is QueueKind.CLASSIC
    assert (await house.ephemeral("e")).spec.kind is QueueKind.EPHEMERAL
    session = await house.vhost.declare_queue(QueueSpec.parse("$session/ada"), inside=True)
    assert session.spec.kind is QueueKind.CLASSIC


async def test_a_virtual_host_has_no_more_queues_than_its_limit(
    house: House, operator: Operator
) -> None:
    await house.queue("q1")
    await operator.run("SELECT howdah.set_vhost_limit('max-queues', 2)")
    await house.queue("q1")
    made: Queue = await house.ephemeral("e")
    with pytest.raises(LimitExceeded, match=r"queue limit in vhost '/' \(2\) is reached"):
        await house.queue("q2")
    await house.vhost.delete_queue("e")
    assert made.is_deleted
    await house.queue("q2")
    await house.crash_and_reopen()
    with pytest.raises(LimitExceeded):
        await house.ephemeral("e")
    await operator.run("SELECT howdah.set_vhost_limit('max-queues', -1)")
    await house.ephemeral("e")
