"""The tables of MQTT sessions, subscriptions and packets in flight.

Implements the port that `queue_core.sessions.session` names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row, bindparam, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql.expression import any_
from sqlalchemy.types import BigInteger, Text

from queue_core.commit.unit import PacketRecord
from queue_core.errors import NotEquivalent
from queue_core.message.message import utc
from queue_core.queues.reserved_names import SHARE_PREFIX, STORED_PREFIX
from queue_core.sessions.deferred_work import DeferredWork
from queue_core.sessions.retained import Retained
from queue_core.sessions.session import ClientKey, SessionSettings, SessionState
from queue_core.sessions.sessions import Sessions
from queue_core.sessions.subscription import Subscription
from queue_core.sessions.wills import MayPublish, Wills
from queue_core.store.schema import Timestamp, packet, queue, session, shard, subscription
from queue_core.store.shards import shard_of_session
from queue_core.store.tables.gathered_transactions import Gathering
from queue_core.store.tables.retained import RetainedTable
from queue_core.store.tables.table_transactions import insert_rows, reading, transaction, unnested
from queue_core.store.tables.unanswered_changes import UnansweredChanges
from queue_core.store.tables.wills import WillTable
from queue_core.store.write.rows import Forms

if TYPE_CHECKING:
    from queue_core.vhost import Vhost


def make_sessions(
    engine: AsyncEngine,
    forms: Forms,
    vhosts: Mapping[str, Vhost],
    deferred: DeferredWork,
    *,
    flushed: Callable[[], Awaitable[None]],
    may_publish: MayPublish,
    settings: SessionSettings | None = None,
) -> Sessions:
    """Makes the sessions of a gateway, with retained messages and wills, on one engine."""
    settings = settings or SessionSettings()
    retained = Retained(
        RetainedTable(engine, forms),
        clock=deferred.clock,
        agenda=deferred.agenda,
        later=deferred.later,
        flushed=flushed,
        settings=settings.retained,
    )
    wills = Wills(
        WillTable(engine, forms),
        retained,
        vhosts,
        clock=deferred.clock,
        agenda=deferred.agenda,
        may_publish=may_publish,
    )
    return Sessions(SessionTables(engine), retained, wills, vhosts, deferred, settings)


class SessionTables:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._adding = Gathering(self._add_all)
        self._changing = Gathering(self._change_all)
        self._deleting = Gathering(self._delete_all)
        self._subscribing = Gathering(self._subscribe_all)
        self._unanswered: UnansweredChanges[ClientKey] = UnansweredChanges()

    # --- at start

    async def load(self, now: float) -> list[SessionState]:
        async with transaction(self._engine) as connection:
            await connection.execute(
                update(session)
                .where(session.c.state == "connected")
                .values(state="disconnected", disconnected_at=utc(now))
            )
            rows = (await connection.execute(select(session).order_by(session.c.id))).all()
            subscriptions = (
                await connection.execute(
                    select(subscription).order_by(
                        subscription.c.session_id, subscription.c.created_at
                    )
                )
            ).all()
        states = {row.id: _state(row) for row in rows}
        for row in subscriptions:
            each = _subscription(row)
            states[row.session_id].subscriptions[each.address] = each
        return list(states.values())

    async def packets(self) -> dict[int, list[PacketRecord]]:
        key = (packet.c.session_id, packet.c.direction, packet.c.packet_id)
        age = func.row_number().over(partition_by=key, order_by=packet.c.seq.desc())
        newest = (
            select(
                *key,
                packet.c.seq,
                packet.c.state,
                packet.c.queue_id,
                packet.c.offset,
                age.label("age"),
            )
            .join(session, session.c.id == packet.c.session_id)
            .join(shard, shard.c.id == session.c.shard)
            .where(packet.c.generation == shard.c.generation)
            .subquery()
        )
        in_flight = (
            select(newest).where(newest.c.age == 1, newest.c.state != 0).order_by(newest.c.seq)
        )
        found: dict[int, list[PacketRecord]] = {}
        async with reading(self._engine) as connection:
            for row in await connection.execute(in_flight):
                found.setdefault(row.session_id, []).append(
                    PacketRecord(
                        row.session_id,
                        bool(row.direction),
                        row.packet_id,
                        row.state,
                        row.queue_id,
                        row.offset,
                    )
                )
        return found

    async def note_limits(self, arguments: Mapping[str, object]) -> None:
        stated = dict(arguments)
        async with transaction(self._engine) as connection:
            await connection.execute(
                update(queue)
                .where(
                    or_(
                        queue.c.name.startswith(STORED_PREFIX, autoescape=True),
                        queue.c.name.startswith(SHARE_PREFIX, autoescape=True),
                    ),
                    queue.c.arguments != stated,
                )
                .values(arguments=stated)
            )

    # --- sessions

    async def add(self, state: SessionState, queue_name: str, now: float) -> int:
        """Stores a new session, and returns its id. Raises NotEquivalent if the client has one
        that this gateway did not store."""
        with self._unanswered.of(state.key):
            session_id = await self._adding.add(_session_values(state, queue_name, now))
            if session_id is None:
                vhost, client_id = state.key
                raise NotEquivalent(
                    f"client '{client_id}' of virtual host '{vhost}' has a session in "
                    "howdah.session already, and this gateway did not write that row: another "
                    "gateway or a person did. Start this gateway again, so that it takes it over, "
                    "or delete the row"
                )
            return session_id

    async def _add_all(self, rows: list[dict[str, object]]) -> list[int | None]:
        """Stores sessions; None: there is a row that is not this gateway's to replace."""
        keys = [(str(row["vhost"]), str(row["client_id"])) for row in rows]
        own = [key for key in keys if key in self._unanswered]
        statement = insert_rows(session, rows).on_conflict_do_nothing()
        key = (session.c.vhost, session.c.client_id)
        async with transaction(self._engine) as connection:
            if own:
                vhosts, client_ids = zip(*own, strict=True)
                given = unnested(vhost=(vhosts, Text), client_id=(client_ids, Text))
                await connection.execute(
                    delete(session).where(key[0] == given.c.vhost, key[1] == given.c.client_id)
                )
            result = await connection.execute(statement.returning(session.c.id, *key))
            ids = {(row.vhost, row.client_id): int(row.id) for row in result}
        return [ids.get(each) for each in keys]

    async def connect(
        self, session_id: int, expiry: float | None, protocol: str, now: float
    ) -> bool:
        return await self._changing.add(
            _Change(session_id, "connected", expiry, protocol, now, None)
        )

    async def disconnect(self, session_id: int, expiry: float | None, now: float) -> None:
        await self._changing.add(_Change(session_id, "disconnected", expiry, None, None, now))

    async def _change_all(self, changes: list[_Change]) -> list[bool]:
        ids, states, expiries, protocols, ons, offs = zip(*changes, strict=True)
        given = unnested(
            id=(ids, BigInteger),
            state=(states, Text),
            expiry_seconds=([_whole(each) for each in expiries], BigInteger),
            protocol=(protocols, Text),
            connected_at=([utc(each) for each in ons], Timestamp),
            disconnected_at=([utc(each) for each in offs], Timestamp),
        )
        statement = (
            update(session)
            .where(session.c.id == given.c.id)
            .values(
                state=given.c.state,
                expiry_seconds=given.c.expiry_seconds,
                protocol=func.coalesce(given.c.protocol, session.c.protocol),
                connected_at=func.coalesce(given.c.connected_at, session.c.connected_at),
                disconnected_at=func.coalesce(given.c.disconnected_at, session.c.disconnected_at),
            )
            .returning(session.c.id)
        )
        async with transaction(self._engine) as connection:
            changed = set((await connection.execute(statement)).scalars())
        return [session_id in changed for session_id in ids]

    async def delete(self, session_id: int) -> None:
        await self._deleting.add(session_id)

    async def _delete_all(self, ids: list[int]) -> list[None]:
        given = unnested(id=(ids, BigInteger))
        async with transaction(self._engine) as connection:
            await connection.execute(delete(session).where(session.c.id == given.c.id))
        return [None] * len(ids)

    # --- subscriptions

    async def put_subscriptions(
        self, session_id: int, subscriptions: Iterable[Subscription]
    ) -> None:
        # of two with one address the later counts; one statement cannot write a row twice
        rows = {each.address: _subscription_values(session_id, each) for each in subscriptions}
        await self._subscribing.add(list(rows.values()))

    async def _subscribe_all(self, requests: list[list[dict[str, object]]]) -> list[None]:
        statement = insert_rows(subscription, [row for rows in requests for row in rows])
        changed = {
            column.name: statement.excluded[column.name]
            for column in subscription.columns
            if column.name not in ("session_id", "filter", "created_at")
        }
        async with transaction(self._engine) as connection:
            await connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["session_id", "filter"], set_=changed
                )
            )
        return [None] * len(requests)

    async def delete_subscriptions(self, session_id: int, addresses: Iterable[str]) -> None:
        wanted = bindparam("addresses", list(addresses), ARRAY(Text))
        async with transaction(self._engine) as connection:
            await connection.execute(
                delete(subscription).where(
                    subscription.c.session_id == session_id, subscription.c.filter == any_(wanted)
                )
            )


class _Change(NamedTuple):
    """A session to be written or removed; a field that is None leaves its column as it is, but for
    the expiry."""

    id: int
    state: str
    expiry: float | None
    protocol: str | None
    connected_at: float | None
    disconnected_at: float | None


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else ceil(seconds)


def _state(row: Row[Any]) -> SessionState:
    disconnected_at: datetime | None = row.disconnected_at
    return SessionState(
        (row.vhost, row.client_id),
        row.user_name,
        row.protocol,
        row.expiry_seconds,
        row.id,
        disconnected_at=None if disconnected_at is None else disconnected_at.timestamp(),
    )


def _session_values(state: SessionState, queue_name: str, now: float) -> dict[str, object]:
    return {
        "vhost": state.key[0],
        "client_id": state.key[1],
        "shard": shard_of_session(*state.key),
        "user_name": state.user,
        "protocol": state.protocol,
        "expiry_seconds": _whole(state.expiry),
        "queue_name": queue_name,
        "state": "connected",
        "connected_at": utc(now),
    }


def _subscription_values(session_id: int, each: Subscription) -> dict[str, object]:
    other = {"share": each.share, "queue": each.queue, "extra": each.extra}
    return {
        "session_id": session_id,
        "filter": each.address,
        "qos": each.qos,
        "no_local": each.no_local,
        "retain_as_published": each.retain_as_published,
        "retain_handling": each.retain_handling,
        "identifier": each.identifier,
        "options": {name: value for name, value in other.items() if value is not None} or None,
    }


def _subscription(row: Row[Any]) -> Subscription:
    other: Mapping[str, Any] = row.options or {}
    share: str | None = other.get("share")
    return Subscription(
        row.filter if share is None else row.filter[len(SHARE_PREFIX) + len(share) + 1 :],
        row.qos,
        row.no_local,
        row.retain_as_published,
        row.retain_handling,
        row.identifier,
        share,
        other.get("queue"),
        other.get("extra"),
    )
