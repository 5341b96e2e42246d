"""A failed test brings down no other one; a passed test that leaves something open is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import asyncio
import gc


async def test_leaves_something_open():
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    circle = [writer]
    circle.append(circle)  # so that only the collector finds it
    assert {holds}


def test_innocent():
    gc.collect()
"""


def failures(folder: Path, *, holds: bool) -> int:
    """How many of the two tests fail, by this project's settings."""
    (folder / "test_two.py").write_text(TESTS.format(holds=holds))
    options = ("-p", "tests.support.left_behind", "-p", "no:cacheprovider", "-q")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", *options, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.count("FAILED ") + done.stdout.count("ERROR ")


def test_sockets_of_a_failed_test_fail_no_other_test(tmp_path: Path) -> None:
    assert failures(tmp_path, holds=False) == 1


def test_sockets_that_a_passed_test_leaves_open_are_a_failure(tmp_path: Path) -> None:
    assert failures(tmp_path, holds=True) > 0
