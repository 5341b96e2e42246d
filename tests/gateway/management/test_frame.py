"""The rules that hold for every route of the HTTP API, on a running gateway."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.http_api import ask
from tests.support.operator import answer


@pytest.fixture(scope="module")
def queues(own_gateway: GatewayProcess) -> list[str]:
    """Some queues of our own, with names that a URL has to quote among them."""
    names = ["frame.a/b", "frame.one", "frame.two", "frame.Three +%"]
    for name in names:
        answer(own_gateway.run("queue", "declare", name))
    return names


@pytest.mark.parametrize("path", ["/api/queues", "/api/queues/"])
def test_a_path_may_end_with_a_slash(own_gateway: GatewayProcess, path: str) -> None:
    assert isinstance(ask(own_gateway, "GET", path).value, list)


@pytest.mark.parametrize("vhost", ["%2F", "%2f", ""])
@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.usefixtures("queues")
def test_the_virtual_host_slash_is_quoted_or_left_out(
    own_gateway: GatewayProcess, vhost: str, end: str
) -> None:
    found = ask(own_gateway, "GET", f"/api/queues/{vhost}/frame.a%2Fb{end}")
    assert (found.value["vhost"], found.value["name"]) == ("/", "frame.a/b")


@pytest.mark.usefixtures("queues")
def test_an_empty_virtual_host_with_a_slash_behind_it_is_the_default_one(
    own_gateway: GatewayProcess,
) -> None:
    found = ask(own_gateway, "GET", "/api/queues//").value
    assert "frame.one" in [each["name"] for each in found]


def test_every_name_can_be_quoted(own_gateway: GatewayProcess, queues: list[str]) -> None:
    for name in queues:
        found = ask(own_gateway, "GET", f"/api/queues/%2F/{quote(name, safe='')}")
        assert found.value["name"] == name


@pytest.mark.parametrize("path", ["/api/queues/nowhere", "/api/queues/%2F/nothing", "/api/nothing"])
def test_names_that_do_not_exist_are_not_found(own_gateway: GatewayProcess, path: str) -> None:
    assert ask(own_gateway, "GET", path).error == (404, "Object Not Found")


def test_a_wrong_method_is_told_which_are_right(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "PATCH", "/api/queues")
    assert found.error == (405, "method_not_allowed")
    assert "GET" in found.headers["Allow"]


# --- logins and tags


def test_a_wrong_password_is_challenged(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "GET", "/api/queues", login="guest:wrong")
    assert found.error == (401, "not_authorized")
    assert found.headers["WWW-Authenticate"].startswith("Basic realm=")


@pytest.mark.parametrize("header", ["Bearer token", "Basic ???", "Basic /w=="])
def test_credentials_of_another_kind_are_refused(own_gateway: GatewayProcess, header: str) -> None:
    found = ask(own_gateway, "GET", "/api/queues", login=None, headers={"Authorization": header})
    assert found.error == (401, "not_authorized")
    assert "HTTP Basic" in found.value["reason"]


def test_a_user_without_a_tag_is_known_and_may_not(own_gateway: GatewayProcess) -> None:
    run = own_gateway.run
    answer(run("user", "add", "frame-untagged", words="secret word\n"))
    found = ask(own_gateway, "GET", "/api/queues", login="frame-untagged:secret word")
    assert found.error == (401, "not_authorised")
    assert "WWW-Authenticate" not in found.headers


def test_a_user_sees_its_virtual_hosts_and_monitoring_all(own_gateway: GatewayProcess) -> None:
    run = own_gateway.run
    for name, tag in (("frame-manager", "management"), ("frame-monitor", "monitoring")):
        answer(run("user", "add", name, "--tag", tag, "--no-permissions", words="secret word\n"))
    answer(run("vhost", "add", "frame-apart"))
    answer(run("queue", "declare", "frame-there", "--vhost", "frame-apart"))
    listed = ask(own_gateway, "GET", "/api/queues", login="frame-manager:secret word")
    assert listed.value == []
    refused = ask(own_gateway, "GET", "/api/queues/frame-apart", login="frame-manager:secret word")
    assert refused.error == (401, "not_authorised")
    seen = ask(own_gateway, "GET", "/api/queues/frame-apart", login="frame-monitor:secret word")
    assert [each["name"] for each in seen.value] == ["frame-there"]


def test_logins_that_fail_too_often_are_slowed_down(own_gateway: GatewayProcess) -> None:
    before = own_gateway.metric('howdah_logins_total{result="refused"}')
    assert ask(own_gateway, "GET", "/api/queues", login="frame-nobody:x").status == 401
    assert own_gateway.metric('howdah_logins_total{result="refused"}') == before + 1


# --- lists


def names(own_gateway: GatewayProcess, query: str) -> list[str]:
    found = ask(own_gateway, "GET", f"/api/queues/%2F?{query}").value
    return [each["name"] for each in (found if isinstance(found, list) else found["items"])]


@pytest.mark.usefixtures("queues")
def test_a_page_is_an_object_that_counts(own_gateway: GatewayProcess) -> None:
    query = "page=1&page_size=2&name=frame.&sort=name&pagination=false"
    page = ask(own_gateway, "GET", f"/api/queues/%2F?{query}").value
    assert page.pop("total_count") >= 4
    assert [each["name"] for each in page.pop("items")] == ["frame.Three +%", "frame.a/b"]
    assert page == {
        "filtered_count": 4,
        "item_count": 2,
        "page": 1,
        "page_count": 2,
        "page_size": 2,
    }
    assert names(own_gateway, query.replace("page=1", "page=2")) == ["frame.one", "frame.two"]


@pytest.mark.usefixtures("queues")
def test_names_are_filtered_in_any_case_by_text_or_pattern(own_gateway: GatewayProcess) -> None:
    assert names(own_gateway, "name=FRAME.T&sort=name") == ["frame.Three +%", "frame.two"]
    assert names(own_gateway, "name=^frame.t.o&use_regex=true") == ["frame.two"]
    assert names(own_gateway, "name=^rame&use_regex=true") == []


@pytest.mark.usefixtures("queues")
def test_lists_are_sorted_either_way(own_gateway: GatewayProcess) -> None:
    asked = "name=frame.&sort=name&sort_reverse=true"
    assert names(own_gateway, asked) == [
        "frame.two", "frame.one", "frame.a/b", "frame.Three +%"
    ]  # fmt: skip


@pytest.mark.usefixtures("queues")
def test_columns_choose_fields(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "GET", "/api/queues/%2F?name=frame.one&columns=name,vhost,x.y")
    assert found.value == [{"name": "frame.one", "vhost": "/"}]
    one = ask(own_gateway, "GET", "/api/queues/%2F/frame.one?columns=messages")
    assert one.value == {"messages": 0}


@pytest.mark.parametrize(
    "query",
    [
        "page=0",
        "page=-1",
        "page=one",
        "page=1&page_size=501",
        "page=1&page_size=0",
        "sort_reverse=perhaps",
        "name=(&use_regex=true",
        "name=(?i)[%00-%F4%8F%BF%BF]{9}&use_regex=true&page=x",
        "&".join(f"a{number}=b" for number in range(100)),
    ],
)
def test_a_wrong_query_is_refused_with_a_reason(own_gateway: GatewayProcess, query: str) -> None:
    assert ask(own_gateway, "GET", f"/api/queues?{query}").error == (400, "bad_request")


def test_a_page_that_is_not_there_is_out_of_range(own_gateway: GatewayProcess) -> None:
    found = ask(own_gateway, "GET", "/api/queues?page=1000")
    assert found.error == (400, "page_out_of_range")
    empty = ask(own_gateway, "GET", "/api/queues?page=1&name=no-such-queue").value
    assert (empty["page_count"], empty["items"]) == (1, [])


def test_a_pattern_that_would_take_hours_is_refused(own_gateway: GatewayProcess) -> None:
    answer(own_gateway.run("queue", "declare", f"frame.{'a' * 40}!"))
    found = ask(own_gateway, "GET", f"/api/queues?use_regex=true&name={quote('^(frame.)?(a+)+$')}")
    assert found.error == (400, "bad_request")
    assert "takes too long" in found.value["reason"]


# --- answers


@pytest.mark.usefixtures("queues")
def test_a_caller_who_has_the_answer_already_gets_none(own_gateway: GatewayProcess) -> None:
    path = "/api/queues/%2F/frame.one"
    first = ask(own_gateway, "GET", path)
    assert first.headers["Cache-Control"] == "no-cache"
    assert "accept-encoding" in first.headers["Vary"]
    again = ask(own_gateway, "GET", path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.raw) == (304, b"")
    changed = ask(own_gateway, "GET", path, headers={"If-None-Match": 'W/"other"'})
    assert changed.status == 200


@pytest.mark.usefixtures("queues")
def test_answers_above_a_kibibyte_are_compressed_for_those_who_take_it(
    own_gateway: GatewayProcess,
) -> None:
    plain = ask(own_gateway, "GET", "/api/queues/%2F?name=frame.")
    assert len(plain.raw) > 1024
    packed = ask(
        own_gateway, "GET", "/api/queues/%2F?name=frame.", headers={"Accept-Encoding": "gzip"}
    )
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.raw) == plain.raw
    refused = ask(own_gateway, "GET", "/api/queues", headers={"Accept-Encoding": "gzip;q=0"})
    assert "Content-Encoding" not in refused.headers


def test_the_document_lists_the_routes(own_gateway: GatewayProcess) -> None:
    document = ask(own_gateway, "GET", "/api/openapi.json", login=None).value
    assert document["openapi"] == "3.1.0"
    assert "get" in document["paths"]["/api/queues/{vhost}/{name}"]
