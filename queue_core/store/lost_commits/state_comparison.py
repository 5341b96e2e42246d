"""Inventories of everything beside messages: definitions, users and the state of MQTT clients, as
memory has it and as the tables have it. The two are compared when a database has lost commits, so
that people are told what is gone, what came back though it was removed, and what is as it was
before.

Memory is the gateway's own view: what others wrote and it never read is not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from queue_core.access.accounts import Roll
from queue_core.message.json_arguments import stored
from queue_core.queues.ephemeral import EphemeralQueue
from queue_core.routing.bindings import ExchangeRef
from queue_core.store.lost_commits.losses import SETBACK, Loss

if TYPE_CHECKING:
    from queue_core.sessions.sessions import Sessions
    from queue_core.vhost import Vhost

NAMED_OF_A_KIND: Final = 1000  # rows of howdah.loss; of the others there is a count

Key = tuple[str, ...]
Inventory = Mapping[str, Mapping[Key, str]]  # what is known of each thing, by kind and name

# Each kind, and how people call one of it.
KINDS: Final = {
    "vhost": "virtual host '{0}'",
    "exchange": "exchange '{1}' of virtual host '{0}'",
    "queue": "queue '{1}' of virtual host '{0}'",
    "binding": "the binding from exchange '{1}' to {2} '{3}' with key '{4}' in virtual host '{0}'",
    "policy": "{1} '{2}' of virtual host '{0}'",
    "user": "user '{0}'",
    "permission": "what user '{0}' may do in virtual host '{1}'",
    "topic_permission": "what user '{0}' may do on exchange '{2}' of virtual host '{1}'",
    "session": "the session of client '{1}' in virtual host '{0}'",
    "subscription": "the subscription of client '{1}' to '{2}' in virtual host '{0}'",
    "packet": "packet {3} in flight {2} client '{1}' in virtual host '{0}'",
    "will": "the will of client '{1}' in virtual host '{0}'",
    "retained": "the retained message of topic '{1}' in virtual host '{0}'",
}
OUTGOING: Final = "to"
INCOMING: Final = "from"

# The same from the tables: the columns of the name, and last what is known of it.
STATEMENTS: Final = {
    "vhost": "SELECT name, '' FROM howdah.vhost",
    "exchange": "SELECT vhost, name, kind FROM howdah.exchange",
    "queue": "SELECT vhost, name, '' FROM howdah.queue",
    "binding": """
        SELECT vhost, source, destination_kind, destination, routing_key, arguments::text, ''
        FROM howdah.binding
    """,
    "policy": """
        SELECT vhost, CASE WHEN is_operator THEN 'operator policy' ELSE 'policy' END, name,
               jsonb_build_array(pattern, apply_to, priority, definition)::text
        FROM howdah.policy
    """,
    "user": """
        SELECT name, concat_ws(' ', password_hash, scram_verifier, (
            SELECT string_agg(t.tag, ' ' ORDER BY t.tag COLLATE "C") FROM unnest(tags) AS t (tag)))
        FROM howdah."user"
    """,
    "permission": """
        SELECT user_name, vhost, jsonb_build_array(configure, write, read)::text
        FROM howdah.permission
    """,
    "topic_permission": """
        SELECT user_name, vhost, exchange, jsonb_build_array(write, read)::text
        FROM howdah.topic_permission
    """,
    "session": "SELECT vhost, client_id, '' FROM howdah.session",
    "subscription": """
        SELECT s.vhost, s.client_id, u.filter, u.qos::text
        FROM howdah.subscription u JOIN howdah.session s ON s.id = u.session_id
    """,
    "packet": f"""
        SELECT s.vhost, s.client_id,
               CASE p.direction WHEN 1 THEN '{OUTGOING}' ELSE '{INCOMING}' END,
               p.packet_id::text, p.state::text
        FROM (
            SELECT DISTINCT ON (j.session_id, j.direction, j.packet_id)
                   j.session_id, j.direction, j.packet_id, j.state
            FROM howdah.packet j
            JOIN howdah.session s ON s.id = j.session_id
            JOIN howdah.shard h ON h.id = s.shard AND h.generation = j.generation
            ORDER BY j.session_id, j.direction, j.packet_id, j.seq DESC
        ) p JOIN howdah.session s ON s.id = p.session_id
        WHERE p.state <> 0
    """,
    "will": "SELECT vhost, client_id, '' FROM howdah.will",
    "retained": """
        SELECT vhost, topic,
               (coalesce(octet_length(body), 0) + coalesce(octet_length(native), 0))::text
        FROM howdah.retained
    """,
}


def remembered(vhosts: Mapping[str, Vhost], roll: Roll, sessions: Sessions) -> Inventory:
    """Makes the inventory of the gateway's memory."""
    return {
        "vhost": dict.fromkeys(((name,) for name in vhosts), ""),
        "exchange": {
            (vhost.name, spec.name): spec.kind.value
            for vhost in vhosts.values()
            for spec in vhost.router.exchanges()
            if spec.durable and spec.name and not spec.name.startswith("amq.")
        },
        "queue": dict.fromkeys(_queues(vhosts), ""),
        "binding": dict.fromkeys(_bindings(vhosts), ""),
        "policy": dict(_policies(vhosts)),
        **_rights(roll),
        **_clients(sessions),
    }


def _queues(vhosts: Mapping[str, Vhost]) -> Iterator[Key]:
    for vhost in vhosts.values():
        for queue in vhost.queues.values():
            if not isinstance(queue, EphemeralQueue):
                yield vhost.name, queue.name


def _bindings(vhosts: Mapping[str, Vhost]) -> Iterator[Key]:
    for vhost in vhosts.values():
        for binding in vhost.topology.stored_bindings():
            end = binding.destination
            kind = "exchange" if isinstance(end, ExchangeRef) else "queue"
            arguments = _canonical(msgspec.json.encode(stored(binding.arguments or {})))
            yield vhost.name, binding.source, kind, end.name, binding.key, arguments


def _policies(vhosts: Mapping[str, Vhost]) -> Iterator[tuple[Key, str]]:
    for vhost in vhosts.values():
        for each in vhost.policies.current.all:
            kind = "operator policy" if each.is_operator else "policy"
            said = [each.pattern, each.apply_to.value, each.priority, dict(each.definition)]
            yield (vhost.name, kind, each.name), _canonical(msgspec.json.encode(said))


def _rights(roll: Roll) -> Inventory:
    return {
        "user": {
            (user.name,): " ".join(
                str(part)
                for part in (user.password_hash, user.verifier, " ".join(sorted(user.tags)))
                if part
            )
            for user in roll.users.values()
        },
        "permission": {
            key: _json(given.configure, given.write, given.read)
            for key, given in roll.permissions.items()
        },
        "topic_permission": {
            key: _json(given.write, given.read) for key, given in roll.topic_permissions.items()
        },
    }


def _clients(sessions: Sessions) -> Inventory:
    states = {state.id: state for state in sessions.stored_states()}
    return {
        "session": dict.fromkeys((state.key for state in states.values()), ""),
        "subscription": {
            (*state.key, each.address): str(each.qos)
            for state in states.values()
            for each in state.subscriptions.values()
        },
        "packet": {
            (
                *states[each.session_id].key,
                OUTGOING if each.is_outgoing else INCOMING,
                str(each.packet_id),
            ): str(each.state)
            for each in sessions.live_packets()
            if each.session_id in states
        },
        "will": dict.fromkeys(sessions.wills.keys(), ""),
        "retained": {(vhost, topic): str(size) for vhost, topic, size in sessions.retained.sizes()},
    }


async def read_inventory(connection: asyncpg.Connection) -> Inventory:
    """Reads the inventory of the tables."""
    found: dict[str, dict[Key, str]] = {}
    for kind, statement in STATEMENTS.items():
        rows = [tuple(row.values()) for row in await connection.fetch(statement)]
        found[kind] = {row[:-1]: row[-1] for row in rows}
    for kind in ("permission", "topic_permission", "policy"):
        found[kind] = {key: _canonical(value.encode()) for key, value in found[kind].items()}
    found["binding"] = {
        (*key[:-1], _canonical(key[-1].encode())): value for key, value in found["binding"].items()
    }
    return found


def differences(memory: Inventory, tables: Inventory) -> list[Loss]:
    """Names what memory holds for committed and the tables do not say, of the kinds that memory
    knows. Queues that are gone are not named here: they are told of with their messages."""
    known = [kind for kind in KINDS if kind in memory]
    return [loss for kind in known for loss in _of_a_kind(kind, memory[kind], tables[kind])]


def _of_a_kind(kind: str, memory: Mapping[Key, str], tables: Mapping[Key, str]) -> Iterator[Loss]:
    gone = [] if kind == "queue" else [key for key in memory if key not in tables]
    back = [key for key in tables if key not in memory]
    old = [key for key, value in memory.items() if tables.get(key, value) != value]
    call = KINDS[kind].format
    texts = [call(*key) for key in gone]
    texts += [f"the removal of {call(*key)}: it is there again" for key in back]
    texts += [f"the newest change of {call(*key)}" for key in old]
    for text in texts[:NAMED_OF_A_KIND]:
        yield Loss(SETBACK, text)
    more = len(texts) - NAMED_OF_A_KIND
    if more > 0:
        yield Loss(SETBACK, f"{more} more of that kind ({kind})")


def _json(*values: str) -> str:
    return msgspec.json.encode(values).decode()


def _canonical(text: bytes) -> str:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
