"""Secrets are hidden in values that people are shown."""

from __future__ import annotations

import pytest

from queue_core.access.secret_masking import masked, masked_field

SHOVEL = {
    "src-uri": ["amqp://ada:open-sesame@a/%2f", "amqps://b:5671"],
    "dest-uri": "amqp://ada:open-sesame@b",
    "src-queue": "orders",
    "prefetch": 10,
}


def test_passwords_in_uris_are_hidden_and_the_rest_is_shown() -> None:
    assert masked(SHOVEL) == {
        "src-uri": ["amqp://ada:***@a/%2f", "amqps://b:5671"],
        "dest-uri": "amqp://ada:***@b",
        "src-queue": "orders",
        "prefetch": 10,
    }


@pytest.mark.parametrize(
    "uri",
    [
        "amqp://ada:s3cret@host",
        "amqp://:s3cret@host",
        "amqp://ada:s3cret/with/slashes@host/vhost",
        "amqp://ada:s3cret@with@ats@host",
        "amqp://ada:s3cret with spaces@host",
        "amqp://one amqp://ada:s3cret@two",
        "amqp://one,amqp://ada:s3cret@two",
        "amqps://host?password=s3cret&heartbeat=5",
        "amqps://host?heartbeat=5&auth_token=s3cret#end",
        "amqps://ada:x@host?client_secret=s3cret",
        "(the broker is mqtt://ada:s3cret@host)",
    ],
)
def test_no_form_of_a_uri_shows_its_secret(uri: str) -> None:
    shown = str(masked({"uri": [uri]}))
    assert "s3cret" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "name", ["password", "PASSWD", "ssl-passphrase", "clientSecret", "refresh_token", "api-key"]
)
@pytest.mark.parametrize("value", ["s3cret", 42, ["s3cret"], {"of": "s3cret"}])
def test_a_field_whose_name_says_secret_is_hidden_whatever_it_holds(
    name: str, value: object
) -> None:
    assert masked_field(name, value) == "***"
    assert masked({"login": {name: value}}) == {"login": {name: "***"}}


@pytest.mark.parametrize("value", ["plain text", "a:b@c", "http://host/path", 5, None, True, [1.5]])
def test_a_value_without_secrets_stays_as_it_is(value: object) -> None:
    assert masked({"value": value}) == {"value": value}
