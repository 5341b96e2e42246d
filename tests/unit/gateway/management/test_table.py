"""The table of routes: the router has its rows and no others, and the document is made of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, cast

import pytest
from aiohttp import web

from gateway.management.api_errors import STATUSES, from_core
from gateway.management.dispatch import add_routes
from gateway.management.openapi import document
from gateway.management.routes import Route
from gateway.management.table import ROUTES
from queue_core.errors import CoreError


def paths_of(app: web.Application) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


def test_the_router_has_every_route_of_the_table_with_and_without_a_slash() -> None:
    app = web.Application()
    add_routes(app, cast(Any, None), ROUTES)
    wanted = {(route.method, route.path + end) for route in ROUTES for end in ("", "/")}
    assert paths_of(app) == wanted


def test_no_route_is_in_the_table_twice() -> None:
    counted = Counter((route.method, route.path) for route in ROUTES)
    assert [key for key, number in counted.items() if number > 1] == []


def test_the_document_has_every_route_and_every_reference_leads_somewhere() -> None:
    made = document(ROUTES, "1")
    listed = {(method.upper(), path) for path, item in made["paths"].items() for method in item}
    assert listed == {(route.method, route.path) for route in ROUTES if not route.is_never}
    text = json.dumps(made)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in made["components"]["schemas"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_below_api_and_says_what_it_does(route: Route) -> None:
    assert route.path.startswith("/api/")
    assert route.summary
    assert not route.path.endswith("/")


def kinds_of(kind: type[CoreError]) -> list[type[CoreError]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *kinds_of(sub))]


def test_every_error_of_the_core_has_a_status() -> None:
    named = {kind for kind in kinds_of(CoreError) if kind.__module__ == "queue_core.errors"}
    assert named == set(STATUSES)


def test_an_error_below_one_that_is_listed_is_answered_as_that_one() -> None:
    for kind in kinds_of(CoreError):
        assert from_core(kind("why")).body.reason == "why"
