"""The data directory: what is said where it cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.postgres.data_dir import create_data_dir
from gateway.postgres.errors import EmbeddedPostgresError


@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, below: str) -> None:
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(EmbeddedPostgresError, match="a folder is needed; choose another data_dir"):
        create_data_dir(place / below)
