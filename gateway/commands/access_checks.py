"""The checks of `howdah doctor` on access: warns of clients that log in without a proof of who they
are, and of passwords in clear text.

Reads the configuration and whether there are users. Where the login may not see the users, that is
said, not guessed.
"""

from __future__ import annotations

import asyncpg

from gateway.config.keys import Auth, Config, ConfigError, is_loopback, require_safe_listeners
from gateway.database import SCHEMA_MISSING
from queue_core.store.operator.finding import Finding, fail, ok, warn

HAS_USERS = """
SELECT EXISTS (
    SELECT FROM howdah."user"
    WHERE password_hash IS NOT NULL OR scram_verifier IS NOT NULL OR name <> 'anonymous')
"""
MAKE_USERS = (
    "`howdah user add` makes the first user and ends that; auth.allow_anonymous and auth.guest "
    "decide it by name"
)


async def openness(connection: asyncpg.Connection, config: Config) -> list[Finding]:
    """Finds all ways in that are open, one finding for each."""
    try:
        has_users = bool(await connection.fetchval(HAS_USERS))
    except SCHEMA_MISSING:
        has_users = False  # there will be none in a schema that is yet to be made
    except asyncpg.InsufficientPrivilegeError:
        unseen = "this login may not see whether there are users, and so who may come in"
        return [warn(unseen, "use the gateway's login"), *in_the_clear(config)]
    return [
        *unguarded(config, has_users=has_users),
        *strangers(config.auth, has_users=has_users),
        *in_the_clear(config),
    ]


def unguarded(config: Config, *, has_users: bool) -> list[Finding]:
    """Finds listeners on the network with which the gateway does not start."""
    try:
        require_safe_listeners(config, has_users=has_users)
    except ConfigError as error:
        return [
            fail(problem, "until then the gateway does not start") for problem in error.problems
        ]
    return []


def strangers(auth: Auth, *, has_users: bool) -> list[Finding]:
    """Finds the built-in logins that are open: anonymous clients, and guest with its well-known
    password."""
    ways = (
        ("clients without credentials", auth.allow_anonymous, auth.admits_anonymous),
        ("guest with password guest", auth.guest, auth.admits_guest),
    )
    findings = []
    for who, said, admits in ways:
        if admits(is_loopback=False, has_users=has_users):
            reach = "from everywhere"
        elif admits(is_loopback=True, has_users=has_users):
            reach = "from this machine, with its proxies, tunnels and browsers"
        else:
            continue
        way_out = MAKE_USERS if said is None else "it was switched on by name in section auth"
        findings.append(warn(f"open: {who} may come in {reach}", way_out))
    return findings or ok("nobody may come in without proving who it is")


def in_the_clear(config: Config) -> list[Finding]:
    """Finds listeners over which passwords cross a network unprotected."""
    return [
        warn(
            f"listener {name} on {listener.host} has no TLS: passwords and messages cross the "
            "network in the clear",
            f"set listeners.{name}.tls, or listen on 127.0.0.1 behind something that has it",
        )
        for name, listener in config.listeners.enabled().items()
        if listener.tls is None and not is_loopback(listener.host)
    ]
