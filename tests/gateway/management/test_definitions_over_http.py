"""Definitions over HTTP: exported and imported as RabbitMQ's tools do it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_definitions import arrives, file_of, only
from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.names import fresh
from tests.support.operator import answer


def test_an_import_names_what_it_leaves_out_and_the_rest_works(
    own_gateway: GatewayProcess,
) -> None:
    prefix = fresh("http")
    done = ask(own_gateway, "POST", "/api/definitions", file_of(prefix))
    assert done.status == 200
    assert done.value["created"] == 6
    assert [line.partition(":")[0] for line in done.value["left_out"]] == [
        f"exchange '{prefix}-jms' in '{prefix}-v'",
        f"queue '{prefix}-passing' in '{prefix}-v'",
    ]
    arrives(own_gateway, prefix)
    exported = only(ask(own_gateway, "GET", "/api/definitions").value, prefix)
    wanted = only(file_of(prefix), prefix)
    for section in ("permissions", "bindings"):
        assert exported[section] == wanted[section], section
    assert [each["name"] for each in exported["queues"]] == [f"{prefix}-q"]


def test_a_file_that_is_taken_whole_is_answered_as_rabbitmq_answers(
    own_gateway: GatewayProcess,
) -> None:
    name = fresh("whole")
    found = {"queues": [{"name": name, "durable": True, "auto_delete": False, "arguments": {}}]}
    assert ask(own_gateway, "POST", "/api/definitions/%2F", found).status == 204
    exported = ask(own_gateway, "GET", "/api/definitions/%2F").value
    assert name in [each["name"] for each in exported["queues"]]
    assert all("vhost" not in each for each in exported["queues"])
    assert ask(own_gateway, "GET", "/api/definitions/nowhere").error == (404, "Object Not Found")


def test_a_form_of_a_browser_is_taken(own_gateway: GatewayProcess) -> None:
    name = fresh("form")
    file = json.dumps({"queues": [{"name": name, "vhost": "/", "arguments": {}}]})
    body = (
        '--edge\r\nContent-Disposition: form-data; name="redirect"\r\n\r\n../#/import\r\n'
        '--edge\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n'
        f"Content-Type: application/json\r\n\r\n{file}\r\n--edge--\r\n"
    ).encode()
    headers = {"Content-Type": "multipart/form-data; boundary=edge"}
    done = ask(own_gateway, "POST", "/api/definitions", body, headers=headers)
    assert done.status == 204, done.raw
    assert ask(own_gateway, "GET", f"/api/queues/%2F/{name}").status == 200


def parameters_of(name: str) -> dict[str, Any]:
    """A file with secrets in each place that holds values."""
    value = {"src-uri": ["amqp://ada:s3cret@far"], "dest-token": "s3cret", "src-queue": "q"}
    return {
        "vhosts": [{"name": name, "metadata": {"owner-password": "s3cret"}}],
        "parameters": [{"vhost": "/", "component": "shovel", "name": name, "value": value}],
        "global_parameters": [{"name": f"{name}-token", "value": "s3cret"}],
        "users": [{"name": f"{name}-weak", "password": "s3cret", "tags": ""}],
    }


def test_a_dry_run_and_a_report_show_no_secret(own_gateway: GatewayProcess, tmp_path: Path) -> None:
    name = fresh("hidden")
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(parameters_of(name)))
    for command in (("import", path, "--dry-run"), ("import", path, "--dry-run", "--json")):
        printed = own_gateway.run("definitions", *command)
        assert "amqp://ada:***@far" in answer(printed)
        assert "s3cret" not in printed.stdout + printed.stderr
    dry = ask(own_gateway, "POST", "/api/definitions?dry_run=true", parameters_of(name))
    assert "amqp://ada:***@far" in str(dry.value)
    assert "s3cret" not in str(dry.value)
    report = ask(own_gateway, "POST", "/api/definitions", parameters_of(name))
    assert f"user '{name}-weak': unsupported: the password has fewer" in str(report.value)
    assert "s3cret" not in str(report.value)


def test_a_parameter_shows_its_secrets_to_administrators_alone(own_gateway: GatewayProcess) -> None:
    name = fresh("shown")
    assert ask(own_gateway, "POST", "/api/definitions", parameters_of(name)).status == 200
    maker, password = f"{name}-maker", "open sesame"
    body = {"password": password, "tags": ["policymaker"]}
    assert ask(own_gateway, "PUT", f"/api/users/{maker}", body).status == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ask(own_gateway, "PUT", f"/api/permissions/%2F/{maker}", everything).status == 201
    for path in (
        "/api/parameters",
        f"/api/parameters/shovel/%2F/{name}",
        "/api/global-parameters",
        f"/api/global-parameters/{name}-token",
    ):
        shown = ask(own_gateway, "GET", path, login=f"{maker}:{password}")
        assert (shown.status, "***" in str(shown.value)) == (200, True), path
        assert "s3cret" not in str(shown.value), path
        assert "s3cret" in str(ask(own_gateway, "GET", path).value), path


def test_strict_and_a_dry_run_change_nothing(own_gateway: GatewayProcess) -> None:
    prefix = fresh("nothing")
    strict = ask(own_gateway, "POST", "/api/definitions?strict=true", file_of(prefix))
    assert strict.error == (400, "bad_request")
    assert f"{prefix}-jms" in strict.value["reason"]
    dry = ask(own_gateway, "POST", "/api/definitions?dry_run=true", file_of(prefix))
    assert {step["action"] for step in dry.value} == {"create", "unsupported"}
    assert any(step["sql"].startswith("SELECT howdah.declare_queue") for step in dry.value)
    assert ask(own_gateway, "GET", f"/api/vhosts/{prefix}-v").status == 404


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="half a file"),
        pytest.param([], id="a list"),
        pytest.param({"queues": [{"name": 1}]}, id="a wrong type"),
        pytest.param({"users": {}}, id="a map"),
        pytest.param(b'{"queues":[' * 50_000, id="deep"),
    ],
)
def test_a_file_of_another_shape_is_refused(own_gateway: GatewayProcess, body: Any) -> None:
    assert ask(own_gateway, "POST", "/api/definitions", body).error == (400, "bad_request")


def test_only_administrators_see_and_change_definitions(own_gateway: GatewayProcess) -> None:
    name = fresh("monitor")
    answer(own_gateway.run("user", "add", name, "--tag", "monitoring", words="open sesame 1\n"))
    login = f"{name}:open sesame 1"
    for method in ("GET", "POST"):
        refused = ask(
            own_gateway, method, "/api/definitions", {} if method == "POST" else None, login=login
        )
        assert refused.error == (401, "not_authorised")
