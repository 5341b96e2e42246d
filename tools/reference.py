"""Writes docs/configuration.md from the sections in gateway/config/keys.py, and the other pages
that are made from code.

Run by `make docs`; a test fails when a page is older than the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import msgspec

from gateway.config.file_and_environment import shown, variable_name
from gateway.config.key_types import Field
from gateway.config.keys import Config
from gateway.config.reader import KeyPath, all_keys
from tools import interop

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

Written by `make docs` from `gateway/config/keys.py`; change it there.

`howdah serve --config howdah.yaml` reads one YAML file. Every key is also an environment variable,
which is laid over the file: upper case, `HOWDAH_` in front, two underscores between the levels
(`listeners.mqtt.port` is `HOWDAH_LISTENERS__MQTT__PORT`). Where a key takes something else than
text, the variable is read as YAML, so `HOWDAH_LISTENERS__AMQP=null` switches that listener off.

An unknown key, a wrong value or two keys that contradict each other stop the start, with the file,
the line, the key and what was expected. Sizes have units (`16MiB`, `2MB`), and durations must have
one (`30s`, `250ms`, `1h30m`).

A listener on an address that other machines reach starts only when there are users, or when
`auth.allow_anonymous` and `auth.guest` are both set.
"""
_HEAD = "| key | expects | default | meaning |\n|---|---|---|---|\n"


def render() -> str:
    """Renders the whole page."""
    sections = [_INTRODUCTION]
    top: list[tuple[KeyPath, Field]] = []
    for path, field in all_keys(Config):
        if len(path) == 1 and field.section is None:
            top.append((path, field))
    sections.append("## Top level\n\n" + _table(top))
    for path, field in all_keys(Config):
        if field.section is not None and field.name != "tls":
            rows = [(key, below) for key, below in all_keys(field.section, path)]
            own = [(key, below) for key, below in rows if _belongs(key, below, path)]
            if own:
                sections.append(f"## {'.'.join(path)}\n\n" + _note(field) + _table(own))
    return "\n".join(sections)


def _belongs(key: KeyPath, field: Field, section: KeyPath) -> bool:
    """Tells if a key stands in the table of a section. TLS is shown with its listener; a section of
    its own has a table of its own."""
    if field.section is not None and field.name == "tls":
        return False
    inner = key[len(section) :]
    return field.section is None and (len(inner) == 1 or inner[0] == "tls")


def _note(field: Field) -> str:
    text = cleandoc(field.section.__doc__ or "") if field.section is not None else ""
    is_ours = text and not text.startswith("A group of keys")
    return f"{text}\n\n" if is_ours else ""


def _table(rows: list[tuple[KeyPath, Field]]) -> str:
    return _HEAD + "".join(_rows(rows))


def _rows(rows: list[tuple[KeyPath, Field]]) -> Iterator[str]:
    for path, field in rows:
        key = f"`{'.'.join(path)}`<br>`{variable_name(path)}`"
        default = _default(path, field)
        yield f"| {key} | {field.expectation()} | {default} | {field.meta.description or ''} |\n"


def _default(path: KeyPath, field: Field) -> str:
    """Writes the default of a key at its path, not of its type: each listener has a port of its
    own."""
    value: object = Config()
    for name in path:
        if not isinstance(value, msgspec.Struct):
            return "required" if field.is_required else _written(field.default)
        attributes = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        value = getattr(value, dict(attributes)[name])
    return _written(value)


def _written(value: object) -> str:
    if value in ({}, ()):
        return "none"
    if isinstance(value, bool) or value is None:
        return shown(value)
    return f"`{value}`"


if __name__ == "__main__":
    for page, text in ((PAGE, render()), (interop.PAGE, interop.render())):
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)
        print(f"wrote {page}")
