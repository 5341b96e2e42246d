"""One call of the HTTP API, as its handler sees it: who calls, what for, and with what."""

from __future__ import annotations

from typing import Generic, TypeVar

from aiohttp import web

from gateway.management.api_errors import bad_request, not_authorised, not_found
from gateway.management.roles import Caller, Role
from gateway.management.services import Services
from queue_core.access.auth import Action, Identity, Resource
from queue_core.manager import Manager
from queue_core.vhost import Vhost

Q = TypeVar("Q")
B = TypeVar("B")

DEFAULT_VHOST = "/"
DEFAULT_EXCHANGE_IN_PATHS = "amq.default"


def whole_number(text: str, most: int) -> int | None:
    """Reads a number from 0 on that a path has; None where it is none, or larger than most. Digits
    are counted before they are read: thousands of them are an error of Python's own."""
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


class Call(Generic[Q, B]):
    """A call that has passed the login, the tags and the checks of its query and body. Raises 400
    for a path that names nothing that could exist."""

    def __init__(
        self, request: web.Request, services: Services, caller: Caller, query: Q, body: B
    ) -> None:
        self.request = request
        self.services = services
        self.caller = caller
        self.query = query
        self.body = body
        self.path: dict[str, str] = dict(request.match_info)
        if not self.path.get("vhost", DEFAULT_VHOST):
            self.path["vhost"] = DEFAULT_VHOST
        if any("\0" in part for part in self.path.values()):
            raise bad_request("a name in the path has a NUL, which no name may have")

    @property
    def manager(self) -> Manager:
        return self.services.manager

    @property
    def identity(self) -> Identity:
        return self.caller.identity

    # --- virtual hosts

    def sees(self, vhost: str) -> bool:
        """Tells whether the caller may see what is in a virtual host: monitoring sees all."""
        return self.caller.has(Role.MONITORING) or self.enters(vhost)

    def enters(self, vhost: str) -> bool:
        """Tells whether the caller has permissions in a virtual host, whatever its tags."""
        return self.manager.auth.may_enter(self.identity, vhost)

    def visible_vhosts(self) -> list[Vhost]:
        """Returns the virtual hosts that the caller may see."""
        return [each for each in list(self.manager.vhosts.values()) if self.sees(each.name)]

    def vhost(self) -> Vhost:
        """Returns the virtual host in the path, to look at. Raises 404, or 401 where the caller may
        not see it."""
        vhost = self._vhost()
        if not self.sees(vhost.name):
            raise self._shut_out(vhost.name)
        return vhost

    def own_vhost(self) -> Vhost:
        """Returns the virtual host in the path, to change something in it: tags open none, only
        permissions do. Raises 404 or 401."""
        vhost = self._vhost()
        if not self.enters(vhost.name):
            raise self._shut_out(vhost.name)
        return vhost

    def _vhost(self) -> Vhost:
        name = self.path["vhost"]
        vhost = self.manager.vhosts.get(name)
        if vhost is None:
            raise not_found(f"there is no virtual host '{name}'")
        return vhost

    def _shut_out(self, vhost: str) -> Exception:
        return not_authorised(
            f"user '{self.identity.name}' may not use virtual host '{vhost}'; an administrator "
            "can grant it permissions there"
        )

    # --- rights

    def require(self, action: Action, resource: Resource) -> None:
        """Requires an ordinary permission. Raises AccessRefused, which is a 401."""
        self.manager.auth.require(self.identity, action, resource)

    def require_role(self, role: Role) -> None:
        """Requires a role beyond that of the route, for some of what it does. Raises 401."""
        if not self.caller.has(role):
            raise not_authorised(f"this needs a user with the tag {role}")

    # --- names

    def exchange(self, part: str = "exchange") -> str:
        """Returns the exchange in the path; the default one is called amq.default there."""
        name = self.path[part]
        return "" if name == DEFAULT_EXCHANGE_IN_PATHS else name
