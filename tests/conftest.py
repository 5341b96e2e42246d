"""Fixtures that every kind of test may ask for; they start only when asked."""

import resource

from hypothesis import HealthCheck, settings

from tests.support.gateway_process import gateway, own_gateway, shared_gateway, stock_gateway
from tests.support.left_behind import pytest_runtest_makereport, pytest_runtest_protocol
from tests.support.limited_gateway import limited_gateway
from tests.support.postgres import (
    database_template,
    database_url,
    own_server,
    postgres_server,
    stock_server,
)

__all__ = [
    "database_template",
    "database_url",
    "gateway",
    "limited_gateway",
    "own_gateway",
    "own_server",
    "postgres_server",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "shared_gateway",
    "stock_gateway",
    "stock_server",
]

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("howdah", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("howdah")

# A plain user's shell allows 1,024 files, which is fewer connections than some tests open; what
# the system grants beyond that is ours to take, as the gateway itself does.
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _most))
