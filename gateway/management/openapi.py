"""The OpenAPI 3.1 document of the HTTP API, made of the table of routes.

Schemas come from the structs that requests are checked against and answers are made of, so that
the document cannot say anything else than the code does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from gateway.management.api_errors import ErrorBody
from gateway.management.lists import ColumnsQuery, Page
from gateway.management.roles import Role
from gateway.management.routes import VHOST, Route

REF: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"
ERRORS: Final = {
    400: "The request is wrong; `reason` says where.",
    401: "The login failed, or the user may not do this.",
    403: "A web page of another origin may not change anything here.",
    404: "There is no such thing.",
    421: "The gateway is not known by the name in `Host`.",
    503: "The database cannot be reached, or a check has failed.",
}
BODY_ERRORS: Final = {
    408: "The body did not come in time.",
    413: "The body is too large.",
}
WITHOUT_BODY: Final = (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Makes the document of all routes that do something."""
    shown = [route for route in routes if not route.is_never]
    schemas = _Schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Howdah management API",
            "version": version,
            "description": "RabbitMQ's HTTP API below /api, and our own below /api/howdah/v1.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


class _Schemas:
    """The schemas of all types in the table."""

    def __init__(self, routes: Sequence[Route]) -> None:
        types: list[Any] = [ErrorBody, Page]
        for route in routes:
            types += [each for each in (route.query, route.body, route.answer) if each is not None]
        unique = list({repr(each): each for each in types}.values())
        found, components = msgspec.json.schema_components(unique, ref_template=REF)
        self._by_type = {repr(kind): schema for kind, schema in zip(unique, found, strict=True)}
        self.components = dict(components)

    def of(self, kind: Any) -> dict[str, Any]:
        return self._by_type[repr(kind)]

    def properties(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        schema = self.of(kind)
        name = schema["$ref"].rpartition("/")[2]
        return dict(self.components[name].get("properties", {}))


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_subject(route.path)],
        "parameters": [*_path_parameters(route), *_query_parameters(route, schemas)],
        "responses": _responses(route, schemas),
        **route.extra,
    }
    if route.role is not Role.ANYBODY:
        operation["security"] = [{"basic": []}]
        operation["x-howdah-role"] = route.role.value
    if route.body is not None and "requestBody" not in route.extra:
        content = {JSON: {"schema": schemas.of(route.body)}}
        operation["requestBody"] = {"content": content}
    return operation


def _operation_id(route: Route) -> str:
    words = route.path.removeprefix("/api/").replace("{", "by-").replace("}", "")
    return f"{route.method.lower()}-{words.replace('/', '-')}"


def _subject(path: str) -> str:
    rest = path.removeprefix("/api/")
    own = "howdah/v1/"
    if rest.startswith(own):
        return f"howdah: {rest.removeprefix(own).partition('/')[0]}"
    return rest.partition("/")[0]


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in route.names:
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        parameter = {"name": name, "in": "path", "required": True, "schema": schema}
        if name == VHOST:
            parameter["description"] = "virtual host; `/` is written %2F"
        parameters.append(parameter)
    return parameters


def _query_parameters(route: Route, schemas: _Schemas) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in schemas.properties(route.query).items()
    ]


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    responses = {str(int(status)): _success(route, status, schemas) for status in route.successes}
    if route.method == "GET":
        responses["304"] = {"description": "The caller has this answer already."}
    errors = {**ERRORS, **(BODY_ERRORS if route.body is not None else {})}
    content = {JSON: {"schema": schemas.of(ErrorBody)}}
    for status, description in sorted(errors.items()):
        responses.setdefault(str(status), {"description": description, "content": content})
    return responses


def _success(route: Route, status: int, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if route.answer is not None and status not in WITHOUT_BODY:
        schema = schemas.of(route.answer)
        if issubclass(route.query, ColumnsQuery):
            schema = {"anyOf": [schema, {"type": "object", "description": "the chosen columns"}]}
        if route.is_list:
            schema = {"anyOf": [{"type": "array", "items": schema}, schemas.of(Page)]}
        described["content"] = {JSON: {"schema": schema}}
    return described
