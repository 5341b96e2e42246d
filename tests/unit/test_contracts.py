"""Dependencies point one way; the contracts are in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[2]


def test_no_import_points_up_or_sideways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=str(tmp_path))
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
