"""SCRAM-SHA-256: the RFC's own example, verifiers, and everything that a client may get wrong."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.access.scram import ITERATIONS, ClientFirst, ScramServer, Verifier, prepared
from queue_core.errors import AccessRefused
from tests.support.scram_client import ScramClient

# RFC 7677, section 3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
END = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
VERIFIER = Verifier.of("pencil", SALT, 4096)


def server(first: bytes = FIRST, verifier: Verifier = VERIFIER) -> ScramServer:
    return ScramServer(ClientFirst.parsed(first), verifier, NONCE)


def test_the_example_of_the_rfc_word_for_word() -> None:
    said = server()
    assert said.first_message == CHALLENGE
    assert said.final_message(FINAL) == END


def test_a_verifier_is_written_as_postgresql_writes_it_and_read_again() -> None:
    text = str(VERIFIER)
    assert text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert Verifier.parsed(text) == VERIFIER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "md5abc",
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==",
        "SCRAM-SHA-256$many:W22ZaJ0SNY7soEsUEjb6gQ==$a:b",
        "SCRAM-SHA-256$0:W22Z$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:W22Z$!!!:###",
    ],
)
def test_what_is_no_verifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"verifier|base64"):
        Verifier.parsed(text)


def test_two_verifiers_of_one_password_have_nothing_in_common() -> None:
    one, other = Verifier.of("pencil"), Verifier.of("pencil")
    assert one.salt != other.salt
    assert one.stored_key != other.stored_key
    assert one.iterations == ITERATIONS


def test_nobodys_salt_is_the_same_each_time_and_another_for_each_name_and_database() -> None:
    key = b"k" * 32
    salt = Verifier.nobodys(key, "ghost").salt
    assert Verifier.nobodys(key, "ghost").salt == salt
    assert Verifier.nobodys(key, "phantom").salt != salt
    assert Verifier.nobodys(b"other", "ghost").salt != salt
    assert len(salt) == len(Verifier.of("x").salt)
    assert Verifier.nobodys(key, "ghost").iterations == ITERATIONS


def test_a_name_with_a_comma_and_an_equals_sign_arrives_unchanged() -> None:
    client = ScramClient("a,b=c", "pencil")
    first = ClientFirst.parsed(client.first())
    assert first.username == "a,b=c"
    said = ScramServer(first, VERIFIER)
    final = said.final_message(client.final(said.first_message.encode()))
    assert final is not None
    assert client.is_server_right(final.encode())


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"n,,n=user", id="no nonce"),
        pytest.param(b"n,,r=abc", id="no name"),
        pytest.param(b"n,,n=,r=abc", id="an empty name"),
        pytest.param(b"n,,n=a=b,r=abc", id="a name with a bare equals sign"),
        pytest.param(b"n=user,r=abc", id="no header"),
        pytest.param(b"p=tls-unique,,n=user,r=abc", id="channel binding"),
        pytest.param(b"n,a=other,n=user,r=abc", id="somebody else's name"),
        pytest.param(b"n,,m=ext,n=user,r=abc", id="an extension that must be understood"),
        pytest.param(b"n,,n=user,r=a b", id="a nonce with a space"),
        pytest.param(b"n,,n=\xff,r=abc", id="no UTF-8"),
        pytest.param(b"n,,n=" + b"x" * 5000 + b",r=abc", id="too long"),
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(AccessRefused):
        ClientFirst.parsed(first)


@pytest.mark.parametrize(
    "final",
    [
        pytest.param(FINAL.replace(b"dHzb", b"AAAA"), id="a wrong proof"),
        pytest.param(FINAL.replace(b"%hv", b"%hx"), id="another nonce"),
        pytest.param(FINAL.replace(b"biws", b"eSws"), id="another header than at first"),
        pytest.param(FINAL.replace(b"dHzbZapW", b"dHzb"), id="a short proof"),
        pytest.param(FINAL.rpartition(b"p=")[0] + b"p=!", id="a proof that is no base64"),
        pytest.param(FINAL.rpartition(b"p=")[0] + b"p=AA==", id="a proof of one byte"),
    ],
)
def test_a_wrong_proof_is_told_from_a_malformed_one_by_nobody(final: bytes) -> None:
    assert server().final_message(final) is None


@pytest.mark.parametrize("final", [b"", b"c=biws", b"p=x", FINAL + b",x=1", b"m=1," + FINAL])
def test_a_last_message_that_is_none_is_refused(final: bytes) -> None:
    with pytest.raises(AccessRefused):
        server().final_message(final)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_login_or_an_error_of_ours(first: bytes, final: bytes) -> None:
    for start in (first, b"n,,n=" + first):
        try:
            ClientFirst.parsed(start)
        except AccessRefused:
            pass
    try:
        assert server().final_message(final) is None
    except AccessRefused:
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pencil", "pencil"),
        ("I\u00adX", "IX"),  # RFC 4013, section 3
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007\u00e9", "\u0007\u00e9"),  # forbidden: taken as it is
        ("\u0627\u0031", "\u0627\u0031"),
        ("p\u00a0q", "p q"),
    ],
)
def test_passwords_are_prepared_as_rfc_4013_says(text: str, expected: str) -> None:
    assert prepared(text) == expected
