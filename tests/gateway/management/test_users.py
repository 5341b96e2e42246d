"""Users, permissions and rules for topics over HTTP."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import HttpAnswer, ask

PASSWORD = "a long word"


def put_user(gateway: GatewayProcess, name: str, **body: Any) -> HttpAnswer:
    return ask(gateway, "PUT", f"/api/users/{name}", {"tags": [], "password": PASSWORD, **body})


def is_let_in(gateway: GatewayProcess, name: str, password: str) -> bool:
    found = ask(gateway, "GET", "/api/whoami", login=f"{name}:{password}")
    return found.status == 200 or found.error == (401, "not_authorised")


def test_a_user_is_made_changed_and_removed(own_gateway: GatewayProcess) -> None:
    assert put_user(own_gateway, "http-ada").status == 201
    assert put_user(own_gateway, "http-ada", tags="management, monitoring").status == 204
    found = ask(own_gateway, "GET", "/api/users/http-ada").value
    assert (found["name"], found["tags"]) == ("http-ada", ["management", "monitoring"])
    who = ask(own_gateway, "GET", "/api/whoami", login=f"http-ada:{PASSWORD}").value
    assert (who["name"], who["tags"]) == ("http-ada", ["management", "monitoring"])
    assert ask(own_gateway, "DELETE", "/api/users/http-ada").status == 204
    assert ask(own_gateway, "DELETE", "/api/users/http-ada").error == (404, "Object Not Found")
    assert not is_let_in(own_gateway, "http-ada", PASSWORD)


def test_a_new_user_may_do_nothing_until_it_is_granted(own_gateway: GatewayProcess) -> None:
    put_user(own_gateway, "http-new")
    listed = ask(own_gateway, "GET", "/api/users/without-permissions").value
    assert "http-new" in [each["name"] for each in listed]
    assert ask(own_gateway, "GET", "/api/users/http-new/permissions").value == []


def test_a_hash_of_rabbitmq_is_a_password(own_gateway: GatewayProcess) -> None:
    salt = b"salt"
    hashed = base64.b64encode(salt + hashlib.sha256(salt + b"rabbit word").digest()).decode()
    made = ask(
        own_gateway,
        "PUT",
        "/api/users/http-rabbit",
        {
            "password_hash": hashed,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "",
        },
    )
    assert made.status == 201
    assert is_let_in(own_gateway, "http-rabbit", "rabbit word")


def test_a_user_can_be_read_and_written_back_with_its_password(own_gateway: GatewayProcess) -> None:
    put_user(own_gateway, "http-copied")
    found = ask(own_gateway, "GET", "/api/users/http-copied").value
    assert found["hashing_algorithm"] == "howdah_argon2id"
    assert ask(own_gateway, "PUT", "/api/users/http-copied", {**found, "tags": ["x"]}).status == 204
    assert is_let_in(own_gateway, "http-copied", PASSWORD)
    listed = own_gateway.run("user", "list", "--json").stdout
    assert '"has_scram": true' in listed.partition('"http-copied"')[2].partition("}")[0]


def test_the_hash_of_a_password_logs_its_user_in(own_gateway: GatewayProcess) -> None:
    for found in (
        ask(own_gateway, "PUT", "/api/auth/hash_password", {"password": "hashed word"}),
        ask(own_gateway, "GET", f"/api/auth/hash_password/{quote('hashed word')}"),
    ):
        assert found.status == 200
        body = {"password_hash": found.value["ok"], "tags": []}
        assert ask(own_gateway, "PUT", "/api/users/http-hashed", body).status in (201, 204)
        assert is_let_in(own_gateway, "http-hashed", "hashed word")


def test_a_user_without_a_password_does_not_log_in_by_one(own_gateway: GatewayProcess) -> None:
    assert ask(own_gateway, "PUT", "/api/users/http-none", {"tags": []}).status == 201
    assert ask(own_gateway, "GET", "/api/users/http-none").value["password_hash"] == ""
    assert not is_let_in(own_gateway, "http-none", "")


@pytest.mark.parametrize(
    "body",
    [
        {"password": PASSWORD},
        {"password": "short", "tags": []},
        {"password": "http-wrong", "tags": []},
        {"password": 12345678, "tags": []},
        {"password": PASSWORD, "tags": 5},
        {"password": PASSWORD, "tags": [5]},
        {"password": PASSWORD, "tags": ["a\0b"]},
        {"password": PASSWORD, "password_hash": "x", "tags": []},
        {"password_hash": "no base64!", "tags": []},
        {"password_hash": "aGFzaA==", "tags": []},
        {"password_hash": "x", "hashing_algorithm": "my_module", "tags": []},
        {"password_hash": "x", "hashing_algorithm": "howdah_argon2id", "tags": []},
        [],
        "text",
        None,
        b"{",
        b"\xff",
        b'{"tags": ["\\ud800"]}',
        b'{"tags":' + b"[" * 20_000,
    ],
)
def test_a_wrong_user_is_refused_and_not_made(own_gateway: GatewayProcess, body: Any) -> None:
    raw = b"null" if body is None else body
    found = ask(own_gateway, "PUT", "/api/users/http-wrong", raw)
    assert found.status == 400
    assert found.value["reason"]
    assert ask(own_gateway, "GET", "/api/users/http-wrong").status == 404


@pytest.mark.parametrize("name", ["%00", "a%00b", quote("ä" * 200), "%0a"])
def test_a_wrong_name_is_refused(own_gateway: GatewayProcess, name: str) -> None:
    assert put_user(own_gateway, name).error == (400, "bad_request")


def test_several_users_are_removed_at_once(own_gateway: GatewayProcess) -> None:
    names = ["http-bulk-1", "http-bulk-2"]
    for name in names:
        put_user(own_gateway, name)
    body = {"users": [*names, "http-nobody"]}
    assert ask(own_gateway, "POST", "/api/users/bulk-delete", body).status == 204
    listed = ask(own_gateway, "GET", "/api/users").value
    assert not set(names) & {each["name"] for each in listed}


def test_only_administrators_see_and_change_users(own_gateway: GatewayProcess) -> None:
    put_user(own_gateway, "http-monitor", tags=["monitoring"])
    login = f"http-monitor:{PASSWORD}"
    for method, path in (
        ("GET", "/api/users"),
        ("GET", "/api/permissions"),
        ("PUT", "/api/users/http-monitor"),
        ("DELETE", "/api/users/http-monitor"),
        ("PUT", "/api/permissions/%2F/http-monitor"),
        ("GET", "/api/users/guest/permissions"),
        ("PUT", "/api/vhosts/http-mine"),
    ):
        body = {"tags": ["administrator"], "configure": "", "write": "", "read": ""}
        found = ask(own_gateway, method, path, body, login=login)
        assert found.error == (401, "not_authorised"), path
    own = ask(own_gateway, "GET", "/api/users/http-monitor/permissions", login=login)
    assert own.value == []


def test_no_answer_and_no_log_shows_a_password(own_gateway: GatewayProcess) -> None:
    secret = "unspeakable-http"
    put_user(own_gateway, "http-discreet", password=secret)
    answers = [
        ask(own_gateway, "GET", "/api/users/http-discreet").raw,
        ask(own_gateway, "PUT", "/api/users/http-discreet", {"password": [secret]}).raw,
        ask(own_gateway, "GET", f"/api/auth/hash_password/{secret}").raw,
        ask(own_gateway, "GET", "/api/users", login=f"http-discreet:{secret}x").raw,
    ]
    assert not any(secret.encode() in each for each in answers)
    assert secret not in own_gateway.said()


# --- permissions


def test_a_permission_is_granted_changed_and_revoked(own_gateway: GatewayProcess) -> None:
    put_user(own_gateway, "http-bob", tags=["management"])
    path = "/api/permissions/%2F/http-bob"
    assert ask(own_gateway, "GET", path).status == 404
    given = {"configure": "^bob-", "write": "", "read": ".*"}
    assert ask(own_gateway, "PUT", path, given).status == 201
    assert ask(own_gateway, "PUT", path, {**given, "write": "x"}).status == 204
    row = {"user": "http-bob", "vhost": "/", **given, "write": "x"}
    assert ask(own_gateway, "GET", path).value == row
    assert row in ask(own_gateway, "GET", "/api/permissions").value
    assert ask(own_gateway, "GET", "/api/users/http-bob/permissions").value == [row]
    assert row in ask(own_gateway, "GET", "/api/vhosts/%2F/permissions").value
    seen = ask(own_gateway, "GET", "/api/vhosts", login=f"http-bob:{PASSWORD}").value
    assert [each["name"] for each in seen] == ["/"]
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "DELETE", path).status == 404
    assert ask(own_gateway, "GET", "/api/vhosts", login=f"http-bob:{PASSWORD}").value == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/permissions/%2F/http-nobody", {"configure": "", "write": "", "read": ""}, 400),
        ("/api/permissions/nowhere/http-eve", {"configure": "", "write": "", "read": ""}, 404),
        ("/api/permissions/%2F/http-eve", {"configure": "", "write": ""}, 400),
        ("/api/permissions/%2F/http-eve", {"configure": "(", "write": "", "read": ""}, 400),
        ("/api/permissions/%2F/http-eve", {"configure": "\0", "write": "", "read": ""}, 400),
        ("/api/permissions/%2F/http-eve", {"configure": None, "write": "", "read": ""}, 400),
        ("/api/topic-permissions/%2F/http-eve", {"exchange": "", "write": "", "read": ""}, 400),
        ("/api/topic-permissions/%2F/http-eve", {"exchange": "\0", "write": "", "read": ""}, 400),
        ("/api/topic-permissions/%2F/http-eve", {"write": "", "read": ""}, 400),
    ],
)
def test_a_wrong_permission_is_refused(
    own_gateway: GatewayProcess, path: str, body: dict[str, Any], status: int
) -> None:
    put_user(own_gateway, "http-eve")
    found = ask(own_gateway, "PUT", path, body)
    assert (found.status, bool(found.value["reason"])) == (status, True)
    assert ask(own_gateway, "GET", "/api/users/http-eve/permissions").value == []


def test_rules_for_topics_are_set_for_one_exchange_and_taken_back(
    own_gateway: GatewayProcess,
) -> None:
    put_user(own_gateway, "http-topics")
    path = "/api/topic-permissions/%2F/http-topics"
    assert ask(own_gateway, "GET", path).status == 404
    for exchange in ("amq.topic", "mine"):
        body = {"exchange": exchange, "write": "^a", "read": "^b"}
        assert ask(own_gateway, "PUT", path, body).status == 201
        assert ask(own_gateway, "PUT", path, body).status == 204
    rows = ask(own_gateway, "GET", path).value
    assert rows == ask(own_gateway, "GET", "/api/users/http-topics/topic-permissions").value
    assert [each["exchange"] for each in rows] == ["amq.topic", "mine"]
    assert ask(own_gateway, "DELETE", f"{path}/mine").status == 204
    assert [each["exchange"] for each in ask(own_gateway, "GET", path).value] == ["amq.topic"]
    assert rows[0] in ask(own_gateway, "GET", "/api/topic-permissions").value
    assert rows[0] in ask(own_gateway, "GET", "/api/vhosts/%2F/topic-permissions").value
    assert ask(own_gateway, "DELETE", path).status == 204
    assert ask(own_gateway, "DELETE", path).status == 404


def test_a_page_of_another_origin_changes_nothing(own_gateway: GatewayProcess) -> None:
    path, headers = "/api/users/bulk-delete", {"Origin": "https://evil.example"}
    put_user(own_gateway, "http-target")
    body = {"users": ["http-target"]}
    refused = ask(own_gateway, "POST", path, body, login=None, headers=headers)
    assert refused.error == (403, "forbidden")
    assert ask(own_gateway, "GET", "/api/users/http-target").status == 200
    own = {"Origin": f"http://localhost:{own_gateway.ports['management']}"}
    assert ask(own_gateway, "POST", path, body, login=None, headers=own).status == 204


def test_a_large_body_is_refused(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "PUT", "/api/users/http-large", {"tags": ["x" * 100_000]})
    assert found.error == (413, "bad_request")
