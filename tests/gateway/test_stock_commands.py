"""Commands on a server as a distribution ships it, which compiles plans that it finds costly (JIT):
a plan over hundreds of segments takes seconds to compile where running it takes milliseconds, so no
command lets the server do it."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from gateway.postgres.server import EmbeddedPostgres
from tests.support.gateway_process import GatewayProcess
from tests.support.operator import answer, ready
from tests.support.postgres import execute, fetch_value
from tests.support.until import wait_until

# Everything is costly, and what was compiled is in the server's log.
EAGER = {
    "jit": "on",
    "jit_above_cost": "0",
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
}
COMMANDS = (
    ["queue", "list"],
    ["queue", "show", "eager"],
    ["queue", "peek", "eager"],
    ["queue", "consumers"],
    ["queue", "in-flight", "eager"],
    ["queue", "redrive", "eager", "--where", "priority > 3"],
    ["publish", "--queue", "eager", "x"],
    ["queue", "purge", "eager"],
    ["user", "list"],
    ["vhost", "list"],
    ["doctor"],
)


@pytest.fixture
def eager_gateway(stock_gateway: GatewayProcess) -> GatewayProcess:
    """With a queue named eager, on a database whose new sessions compile every plan they may."""
    answer(stock_gateway.run("queue", "declare", "eager"))
    answer(stock_gateway.run("publish", "--queue", "eager", "x"))
    wait_until(lambda: ready(stock_gateway, "eager") == 1)
    url = stock_gateway.database_url
    name = urlsplit(url).path.lstrip("/")
    for setting, value in EAGER.items():
        execute(url, f"ALTER DATABASE {name} SET {setting} = '{value}'")
    return stock_gateway


def test_no_command_has_its_plans_compiled(
    eager_gateway: GatewayProcess, stock_server: EmbeddedPostgres
) -> None:
    log = stock_server.data_dir / "postgres.log"
    url = eager_gateway.database_url
    name = urlsplit(url).path.lstrip("/")
    try:
        for arguments in COMMANDS:
            start = log.stat().st_size
            answer(eager_gateway.run(*arguments))
            said = log.read_bytes()[start:].decode()
            assert "Query Text: " in said, arguments
            assert "JIT:" not in said, arguments
        start = log.stat().st_size
        fetch_value(url, "SELECT count(*) FROM howdah.message")
        if "JIT:" not in log.read_bytes()[start:].decode():
            pytest.skip("this server cannot compile plans: nothing was shown")
    finally:
        execute(url, f"ALTER DATABASE {name} RESET ALL")
