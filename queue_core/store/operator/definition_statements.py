"""The SQL of each step of an import, for people who want to see or do it themselves. Passwords,
their hashes and other secrets are never in it."""

from __future__ import annotations

from typing import Final

import msgspec

from queue_core.access.accounts import Permission, TopicPermission
from queue_core.access.secret_masking import MASK, masked_field
from queue_core.definitions.document_export import topology_of
from queue_core.definitions.items import BindingItem, arguments_of
from queue_core.definitions.plan import Account, Step, Value, VhostLimits
from queue_core.definitions.present import VhostFacts
from queue_core.message.json_arguments import stored
from queue_core.policies.policy import Policy
from queue_core.queues.spec import QueueSpec
from queue_core.routing.exchanges import ExchangeSpec

HIDDEN_HASH: Final = "(hash in the file)"
HIDDEN_SECRET: Final = f" -- {MASK} stands for a secret that is in the file"


def statement(step: Step) -> str:
    """Returns the SQL that does a step; empty where there is nothing to do."""
    if not step.is_made:
        return ""
    vhost = _text(step.vhost or "")
    match step.wanted:
        case Account():
            return _user(step.wanted)
        case Permission(configure, write, read):
            columns = ", ".join((_text(step.name), vhost, *map(_text, (configure, write, read))))
            names = "user_name, vhost, configure, write, read"
            return _insert("permission", names, columns, "user_name, vhost")
        case TopicPermission(write, read):
            given = (step.name, step.vhost or "", step.exchange, write, read)
            names = "user_name, vhost, exchange, write, read"
            keys = "user_name, vhost, exchange"
            return _insert("topic_permission", names, ", ".join(map(_text, given)), keys)
        case VhostFacts() | VhostLimits() | Policy() | Value():
            return _setting(step, vhost)
        case _:
            return _topology(step, vhost)


def _user(account: Account) -> str:
    user = account.user
    array = f"ARRAY[{', '.join(map(_text, sorted(user.tags)))}]::text[]"
    columns = f"{_text(user.name)}, {_text(HIDDEN_HASH)}, {array}"
    limits = [
        f" SELECT howdah.set_user_limit({_text(user.name)}, {_text(limit)}, {value});"
        for limit, value in account.limits.items()
    ]
    made = _insert('"user"', "name, password_hash, tags", columns, "name")
    return made + "".join(limits)


def _setting(step: Step, vhost: str) -> str:
    name = _text(step.name)
    match step.wanted:
        case VhostFacts() as facts:
            made = f"INSERT INTO howdah.vhost (name) VALUES ({name}) ON CONFLICT DO NOTHING;"
            tags = f"ARRAY[{', '.join(map(_text, facts.tags))}]::text[]"
            kind = "NULL" if facts.default_queue_type is None else _text(facts.default_queue_type)
            metadata, remark = _shown("", facts.metadata)
            said = f"{name}, {_text(facts.description)}, {tags}, {kind}, {metadata}"
            described = f" SELECT howdah.describe_vhost({said});{remark}"
            return made + ("" if facts == VhostFacts() else described)
        case VhostLimits(limits):
            return " ".join(
                f"SELECT howdah.set_vhost_limit({_text(limit)}, {value}, {vhost});"
                for limit, value in limits.items()
            )
        case Policy() as policy:
            definition, remark = _shown("", policy.definition)
            what = f"{_text(policy.name)}, {_text(policy.pattern)}, {definition}"
            how = f"{_text(policy.apply_to.value)}, {policy.priority}, {vhost}"
            whose = str(policy.is_operator).lower()
            return f"SELECT howdah.set_policy({what}, {how}, {whose});{remark}"
        case Value(value, component) if component:
            bare = step.name.removeprefix(f"{component}/")
            shown, remark = _shown(bare, value)
            given = f"{_text(component)}, {_text(bare)}, {shown}, {vhost}"
            return f"SELECT howdah.set_parameter({given});{remark}"
        case Value(value):
            shown, remark = _shown(step.name, value)
            return f"SELECT howdah.set_global_parameter({name}, {shown});{remark}"
    raise AssertionError(step)


def _topology(step: Step, vhost: str) -> str:
    match step.wanted:
        case QueueSpec(name, arguments=arguments):
            given_arguments = _json(stored(arguments))
            return f"SELECT howdah.declare_queue({_text(name)}, {given_arguments}, {vhost});"
        case BindingItem(destination_type="queue") as item:
            key, source = _text(item.routing_key), _text(item.source)
            ends = f"{_text(item.destination)}, {key}, {source}"
            return f"SELECT howdah.bind({ends}, {_json(stored(arguments_of(item)))}, {vhost});"
        case BindingItem() as item:
            bindings = [msgspec.to_builtins(item)]
            return f"SELECT howdah.import_definitions({_json({'bindings': bindings})}, {vhost});"
        case ExchangeSpec():
            exchanges = topology_of([step])["exchanges"]
            return f"SELECT howdah.import_definitions({_json({'exchanges': exchanges})}, {vhost});"
    raise AssertionError(step)


def _insert(table: str, names: str, values: str, keys: str) -> str:
    others = [name for name in names.split(", ") if name not in keys.split(", ")]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return (
        f"INSERT INTO howdah.{table} ({names}) VALUES ({values}) "
        f"ON CONFLICT ({keys}) DO UPDATE SET {changes};"
    )


def _text(value: str) -> str:
    """Quotes a text as a literal; with backslashes it is one in C's notation, whatever the server's
    settings."""
    quoted = value.replace("'", "''")
    return f"""E'{quoted.replace(chr(92), chr(92) * 2)}'""" if "\\" in quoted else f"'{quoted}'"


def _shown(name: str, value: object) -> tuple[str, str]:
    """Returns a setting's value as a literal without its secrets, and a remark where it had one."""
    found = masked_field(name, value)
    return _json(found), "" if found == value else HIDDEN_SECRET


def _json(value: object) -> str:
    return _text(msgspec.json.encode(value).decode())
