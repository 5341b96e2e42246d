"""Limits of virtual hosts and users: `/api/vhost-limits` and `/api/user-limits`.

They are read from memory and changed in the tables; a change is in force when it is answered.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.management.answers import NO_CONTENT, Reply
from gateway.management.call import Call
from gateway.management.changed_rights import in_force
from gateway.management.compat.users import user_in_path
from gateway.management.lists import Listing, ListQuery
from gateway.management.roles import Role
from gateway.management.routes import Body, NoQuery, Route
from queue_core.access.accounts import User
from queue_core.vhost import Vhost


class VhostLimits(Struct, frozen=True):
    """The limits of one virtual host that are set."""

    vhost: str
    value: dict[str, int]


class UserLimitsRow(Struct, frozen=True):
    """The limits of one user that are set."""

    user: str
    value: dict[str, int]


class LimitBody(Body, frozen=True):
    value: Annotated[int, Meta(ge=-1, lt=2**31, description="a number; -1: no limit")]


def _of_vhost(vhost: Vhost) -> VhostLimits:
    return VhostLimits(vhost.name, vhost.settings.limits)


def _of_user(user: User) -> UserLimitsRow:
    return UserLimitsRow(user.name, user.limits.set_ones)


async def list_vhosts(call: Call[ListQuery, None]) -> Listing[Vhost]:
    limited = [each for each in call.visible_vhosts() if each.settings.limits]
    return Listing(sorted(limited, key=lambda vhost: vhost.name), _of_vhost)


async def list_of_vhost(call: Call[ListQuery, None]) -> Listing[Vhost]:
    vhost = call.vhost()
    return Listing([vhost] if vhost.settings.limits else [], _of_vhost)


async def list_users(call: Call[ListQuery, None]) -> Listing[User]:
    users = call.manager.auth.accounts.roll.users.values()
    limited = [each for each in users if each.limits.set_ones]
    return Listing(sorted(limited, key=lambda user: user.name), _of_user)


async def list_of_user(call: Call[ListQuery, None]) -> Listing[User]:
    user = user_in_path(call)
    return Listing([user] if user.limits.set_ones else [], _of_user)


async def _set_of_vhost(call: Call[Any, Any], value: int | None) -> Reply:
    await call.manager.stored_vhosts.set_limit(call.path["vhost"], call.path["limit"], value)
    await in_force(call.manager)
    return NO_CONTENT


async def put_of_vhost(call: Call[NoQuery, LimitBody]) -> Reply:
    return await _set_of_vhost(call, call.body.value)


async def delete_of_vhost(call: Call[NoQuery, None]) -> Reply:
    return await _set_of_vhost(call, None)


async def _set_of_user(call: Call[Any, Any], value: int | None) -> Reply:
    user_in_path(call)
    await call.manager.stored_users.set_limit(call.path["user"], call.path["limit"], value)
    await in_force(call.manager)
    return NO_CONTENT


async def put_of_user(call: Call[NoQuery, LimitBody]) -> Reply:
    return await _set_of_user(call, call.body.value)


async def delete_of_user(call: Call[NoQuery, None]) -> Reply:
    return await _set_of_user(call, None)


VHOSTS: Final = "/api/vhost-limits"
USERS: Final = "/api/user-limits"
ROUTES: Final = (
    Route(
        method="GET",
        path=VHOSTS,
        handler=list_vhosts,
        summary="Limits of all virtual hosts that have some",
        query=ListQuery,
        answer=VhostLimits,
        is_list=True,
    ),
    Route(
        method="GET",
        path=VHOSTS + "/{vhost}",
        handler=list_of_vhost,
        summary="Limits of a virtual host",
        query=ListQuery,
        answer=VhostLimits,
        is_list=True,
    ),
    Route(
        method="PUT",
        path=VHOSTS + "/{vhost}/{limit}",
        handler=put_of_vhost,
        summary="Limit a virtual host: max-connections or max-queues",
        role=Role.ADMINISTRATOR,
        body=LimitBody,
        statuses=(204,),
    ),
    Route(
        method="DELETE",
        path=VHOSTS + "/{vhost}/{limit}",
        handler=delete_of_vhost,
        summary="Take a limit of a virtual host away",
        role=Role.ADMINISTRATOR,
    ),
    Route(
        method="GET",
        path=USERS,
        handler=list_users,
        summary="Limits of all users that have some",
        role=Role.ADMINISTRATOR,
        query=ListQuery,
        answer=UserLimitsRow,
        is_list=True,
    ),
    Route(
        method="GET",
        path=USERS + "/{user}",
        handler=list_of_user,
        summary="Limits of a user",
        role=Role.ADMINISTRATOR,
        query=ListQuery,
        answer=UserLimitsRow,
        is_list=True,
    ),
    Route(
        method="PUT",
        path=USERS + "/{user}/{limit}",
        handler=put_of_user,
        summary="Limit a user: max-connections or max-channels",
        role=Role.ADMINISTRATOR,
        body=LimitBody,
        statuses=(204,),
    ),
    Route(
        method="DELETE",
        path=USERS + "/{user}/{limit}",
        handler=delete_of_user,
        summary="Take a limit of a user away",
        role=Role.ADMINISTRATOR,
    ),
)
