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
    "queue_core.queues.live_run_consumers",  # which subscribers take a run as it came
    "queue_core.queues.spec",
    "queue_core.queues.reserved_names",  # which names a client may not choose
    "queue_core.declaration_rights",  # what declaring and binding ask for
    "queue_core.transaction",  # what `Vhost.transaction` gives
    "queue_core.routing.exchanges",  # the words of `declare_exchange`
    "queue_core.routing.bindings",  # the words of `bind`
    "queue_core.routing.route",  # where a message goes, for adapters that publish to it again
    "queue_core.commit.unit",  # who is told of a commit, and the records that go with a message
    "queue_core.counters",  # what a connection is counted by
    "queue_core.routing.topics",
    "queue_core.scheduler",  # a connection takes its time on the loop in slices
    "queue_core.memory_account",  # a connection's buffers count in the one account
)
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
    assert not {name for name in imported_by(path) if not is_of_the_face(name)}


@pytest.mark.parametrize("entry", FACE)
def test_the_face_has_no_entry_that_no_adapter_needs(entry: str) -> None:
    imported = {name for path in ADAPTERS for name in imported_by(path)}
    assert any(is_within(name, entry) for name in imported)


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_adapter_reaches_into_a_queue(path: Path) -> None:
    """A queue's cursor, log and history, and the context of all queues, are the core's own."""
    reached = {
        f"{path.name}:{node.lineno} .{node.attr}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and is_inside_of_a_queue(node)
    }
    assert not reached


def is_inside_of_a_queue(node: ast.Attribute) -> bool:
    """Tells whether an attribute is a queue's own. A log is looked into by its attributes, so that
    modules may log; and adapters have contexts of their own, which are no virtual host's."""
    match node:
        case ast.Attribute(attr="cursor" | "history"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="log")):
            return True
        case ast.Attribute(attr="context", value=ast.Attribute(attr="vhost" | "_vhost")):
            return True
        case ast.Attribute(attr="context", value=ast.Name(id="vhost" | "queue")):
            return True
        case _:
            return False


def is_of_the_face(name: str) -> bool:
    return any(is_within(name, entry) for entry in FACE)


def is_within(name: str, entry: str) -> bool:
    return name.startswith(entry) if entry.endswith(".") else name == entry
