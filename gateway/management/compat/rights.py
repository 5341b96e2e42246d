"""Ordinary permissions of whoever calls the HTTP API, on what is declared, bound and used: the same
as over AMQP 0.9.1, on top of the tags."""

from __future__ import annotations

from typing import Any

from gateway.management.call import Call
from queue_core.access.auth import Action, Resource, ResourceKind
from queue_core.declaration_rights import DeclarationRights
from queue_core.vhost import Vhost


def rights_of(call: Call[Any, Any], vhost: Vhost) -> DeclarationRights:
    def require(action: Action, kind: ResourceKind, name: str, key: str | None) -> None:
        call.require(action, Resource(kind, vhost.name, name, key))

    return DeclarationRights(require, vhost.router)
