"""Dependencies point one way; the contracts are in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir={}))"


def test_no_import_points_up_or_sideways(tmp_path: Path) -> None:
    # In a process of its own: the linter sets up logging, which other tests look at.
    command = [sys.executable, "-c", LINT.format(repr(str(tmp_path)))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
