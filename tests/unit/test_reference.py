"""Generated pages are as new as the code."""

from __future__ import annotations

from gateway.config.keys import Config
from gateway.config.reader import all_keys
from tools import interop
from tools.reference import PAGE, render


def test_the_configuration_page_is_what_make_docs_writes() -> None:
    assert PAGE.read_text() == render(), "run 'make docs'"


def test_the_interop_page_is_what_make_docs_writes() -> None:
    assert interop.PAGE.read_text() == interop.render(), "run 'make docs'"


def test_every_key_is_explained() -> None:
    page = render()
    for path, field in all_keys(Config):
        if field.section is None:
            assert field.meta.description, f"{'.'.join(path)} has no description"
            assert f"`{'.'.join(path)}`" in page
