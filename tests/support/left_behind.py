"""Clears away what a failed test has left open, before the next test begins.

The test's traceback holds sockets and transports that nobody closes any more. The collector would
find them in a later test, whose warnings are errors: an innocent test would fail as well.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Generator

import pytest

_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes that a phase of the test has failed."""
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Collects after a failed test, and only then: what a passed one leaves open is its failure."""
    result = yield
    if item.stash.get(_HAS_FAILED, False):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            if hasattr(sys, name):  # pytest keeps them for debuggers until the next test
                delattr(sys, name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result
