"""A router for each test."""

from __future__ import annotations

import pytest

from queue_core.routing.router import Router


@pytest.fixture
def router() -> Router[str]:
    return Router()
