"""Dependencies point one way: the contracts are in pyproject.toml, the adapters' edge is here."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = sorted((ROOT / "protocols").rglob("*.py"))

# The core as adapters see it: packages with everything in them, and single modules.
FACE = (
    "queue_core.vhost",
    "queue_core.message.",
    "queue_core.delivery.consumer",
    "queue_core.sessions.",
    "queue_core.access.",
    "queue_core.errors",
    "queue_core.outcomes",
    "queue_core.queues.queue",  # what may be asked of a queue, whichever kind it is
    "queue_core.queues.spec",
    "queue_core.routing.topics",
    "queue_core.scheduler",  # a connection takes its time on the loop in slices
    "queue_core.memory_account",  # a connection's buffers count in the one account
)
# Modules that adapters still reach into beside that face. The list may only become shorter.
REACHED_INTO = {
    "queue_core.commit.unit",
    "queue_core.counters",
    "queue_core.queues.backpressure",
    "queue_core.delivery.ready",
    "queue_core.queues.classic",
    "queue_core.queues.ephemeral",
    "queue_core.queues.reserved_names",
    "queue_core.routing.bindings",
    "queue_core.routing.exchanges",
    "queue_core.routing.router",
    "queue_core.transaction",
}
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir={}))"


def test_no_import_points_up_or_sideways(tmp_path: Path) -> None:
    # In a process of its own: the linter sets up logging, which other tests look at.
    command = [sys.executable, "-c", LINT.format(repr(str(tmp_path)))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def imported_by(path: Path) -> Iterator[str]:
    """The modules of the core that a file imports, for types as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("queue_core"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("queue_core"):
            module = node.module or ""
            for name in node.names:
                inner = ROOT / module.replace(".", "/") / f"{name.name}.py"
                yield f"{module}.{name.name}" if inner.exists() else module


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_adapter_imports_only_the_face_of_the_core(path: Path) -> None:
    beside = {name for name in imported_by(path) if not is_of_the_face(name)}
    assert beside <= REACHED_INTO


def test_the_list_of_what_adapters_reach_into_has_no_entry_too_many() -> None:
    imported = {name for path in ADAPTERS for name in imported_by(path)}
    assert imported >= REACHED_INTO


def is_of_the_face(name: str) -> bool:
    return any(name.startswith(each) if each.endswith(".") else name == each for each in FACE)
