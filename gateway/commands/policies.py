"""`howdah policy`: manages policies, which give values to queues and exchanges by their names.

A change acts on all queues and exchanges when its command returns.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import msgspec

from gateway.commands.command import (
    CommandError,
    Commands,
    add_command,
    add_family,
    add_json,
    add_vhost,
)
from gateway.commands.database import engine_for
from gateway.commands.output import print_json, print_table
from gateway.commands.rights_confirmation import changing
from gateway.config.keys import Config
from queue_core.policies.policy import ApplyTo, Policy
from queue_core.policies.policy_keys import ACTING_KEYS, inert_keys

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from queue_core.store.tables.policies import Policies, StoredPolicy

EXAMPLE = r"""Example:
  howdah policy set short '^orders\.' '{"max-length": 10000}' --apply-to queues"""


def register(commands: Commands) -> None:
    family = add_family(commands, "policy", "values for queues and exchanges, by their names")
    parser = add_command(
        family,
        "set",
        set_policy,
        "make a policy, or replace the one of that name",
        "Of the policies whose pattern is found in a name, the one with the highest priority acts, "
        "and no other. An argument that a queue was declared with wins over it, or the smaller of "
        "two numbers does.",
        f"Keys: {', '.join(ACTING_KEYS)}. Times are in milliseconds, max-age is like 7D.",
        EXAMPLE,
    )
    parser.add_argument("name", help="name of the policy")
    parser.add_argument("pattern", help="regular expression that is looked for in names")
    parser.add_argument("definition", help="JSON object of keys and values")
    parser.add_argument(
        "--apply-to", default=ApplyTo.ALL.value, choices=[*map(str, ApplyTo)], help="default: all"
    )
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="the highest acts (default: 0)"
    )
    _add_which(parser)
    parser = add_command(
        family,
        "list",
        list_policies,
        "policies of a virtual host, in the order in which they are tried",
    )
    _add_which(parser)
    add_json(parser)
    parser = add_command(family, "clear", clear_policy, "remove a policy")
    parser.add_argument("name", help="name of the policy")
    _add_which(parser)


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operator",
        action="store_true",
        help="an operator policy: merged with the ordinary one, the stricter value counts",
    )
    add_vhost(parser)


def _policies(engine: AsyncEngine) -> Policies:
    from queue_core.store.tables.policies import Policies

    return Policies(engine)


async def set_policy(options: argparse.Namespace, config: Config) -> int:
    try:
        definition = msgspec.json.decode(options.definition)
    except msgspec.DecodeError as error:
        raise CommandError(
            f"the definition is not JSON: {error}; write it like '{{\"max-length\": 1000}}'"
        ) from error
    policy = Policy.parse(
        options.name,
        options.pattern,
        definition,
        apply_to=options.apply_to,
        priority=options.priority,
        is_operator=options.operator,
    )
    async with changing(config) as engine:
        is_new = await _policies(engine).put(options.vhost, policy)
    print(f"{_called(options)} {'made' if is_new else 'changed'}")
    for key in inert_keys(policy.definition):
        print(f"key '{key}' is kept and has no effect here")
    return 0


async def list_policies(options: argparse.Namespace, config: Config) -> int:
    async with engine_for(config) as engine:
        found = await _policies(engine).all(options.vhost, is_operator=options.operator)
    if options.json:
        print_json([_as_json(each) for each in found])
        return 0
    rows = [
        (
            each.policy.name,
            each.policy.pattern,
            each.policy.apply_to,
            each.policy.priority,
            json.dumps(each.policy.definition),
        )
        for each in found
    ]
    print_table(("policy", "pattern", "apply to", "priority", "definition"), rows)
    return 0


def _as_json(stored: StoredPolicy) -> dict[str, object]:
    policy = stored.policy
    return {
        "vhost": stored.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


async def clear_policy(options: argparse.Namespace, config: Config) -> int:
    async with changing(config) as engine:
        is_gone = await _policies(engine).remove(
            options.vhost, options.name, is_operator=options.operator
        )
        if not is_gone:
            raise CommandError(
                f"there is no {_called(options)} in virtual host '{options.vhost}'; see "
                "`howdah policy list`"
            )
    print(f"{_called(options)} cleared")
    return 0


def _called(options: argparse.Namespace) -> str:
    return f"{'operator policy' if options.operator else 'policy'} '{options.name}'"
