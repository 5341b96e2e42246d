"""URLs with several hosts: taken apart, and asked for a server that takes writes."""

from __future__ import annotations

import pytest

from queue_core.store.primary import host_urls, place, writable

HOSTS = [
    pytest.param("postgresql://u:p@h/d", ["postgresql://u:p@h/d"], id="one"),
    pytest.param("postgresql:///d", ["postgresql:///d"], id="none"),
    pytest.param(
        "postgresql://u:p@a:1,b:2/d?sslmode=require",
        ["postgresql://u:p@a:1/d?sslmode=require", "postgresql://u:p@b:2/d?sslmode=require"],
        id="each has its login, port and settings",
    ),
    pytest.param(
        "postgresql://u:p,w@[::1]:5,b/d",
        ["postgresql://u:p,w@[::1]:5/d", "postgresql://u:p,w@b/d"],
        id="a comma in the password, IPv6",
    ),
    pytest.param(
        "postgresql:///d?host=a,b&port=1,2",
        ["postgresql:///d?host=a&port=1", "postgresql:///d?host=b&port=2"],
        id="as parameters",
    ),
    pytest.param(
        "postgresql:///d?host=a,/run/x&port=7",
        ["postgresql:///d?host=a&port=7", "postgresql:///d?host=%2Frun%2Fx&port=7"],
        id="one port for all",
    ),
]


@pytest.mark.parametrize(("url", "each"), HOSTS)
def test_a_url_with_several_hosts_is_one_for_each(url: str, each: list[str]) -> None:
    assert host_urls(url) == each


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("postgresql://h/d", "postgresql://h/d?target_session_attrs=read-write"),
        ("postgresql://h/d?a=b", "postgresql://h/d?a=b&target_session_attrs=read-write"),
        ("postgresql://h/d?target_session_attrs=any", "postgresql://h/d?target_session_attrs=any"),
    ],
)
def test_a_server_that_takes_writes_is_asked_for_unless_the_url_says_otherwise(
    url: str, asked: str
) -> None:
    assert writable(url) == asked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/d", "h:5432"),
        ("postgresql://u:secret@h:1/d", "h:1"),
        ("postgresql://[::1]/d", "[::1]:5432"),
        ("postgresql:///d?host=/run/x&port=7", "/run/x:7"),
    ],
)
def test_a_host_is_shown_without_its_login(url: str, shown: str) -> None:
    assert place(url) == shown
