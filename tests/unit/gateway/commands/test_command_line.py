"""Arguments that the command line refuses before it looks at anything else."""

from __future__ import annotations

import pytest

from gateway.main import main


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("queue purge q --timeout nan", "--timeout: expected seconds from 0 to 31536000"),
        ("queue purge q --timeout -1", "--timeout: expected seconds from 0 to 31536000"),
        ("queue peek q --limit 2147483648", "--limit: expected a number from 0 to 2147483647"),
        ("queue peek q --offset 9223372036854775808", "--offset: expected a number from 0 on"),
        ("publish --queue q --priority 256 x", "--priority: expected a number from 0 to 255"),
        ("subscribe a --port 65536", "--port: expected a number from 1 to 65535"),
        ("subscribe a --count 0", "--count: expected a number from 1 on"),
    ],
)
def test_a_number_that_an_option_cannot_have_ends_with_two(
    capsys: pytest.CaptureFixture[str], arguments: str, expected: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["queue", "show", "\udcff"],
        ["publish", "a/b", "\udcff"],
        ["publish", "a/b", "x", "--header", "a=\udcff"],
        ["user", "add", "\udcff"],
        ["subscribe", "\udcff"],
    ],
)
def test_bytes_that_are_no_text_are_refused_as_such(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 1
    assert "is not UTF-8 text" in capsys.readouterr().err
