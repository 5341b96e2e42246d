"""Makes a listener's TLS context from the configured files.

Answers for the server side only, with errors that name the key of the configuration.
"""

from __future__ import annotations

import ssl

from gateway.config.file_and_environment import ConfigError
from gateway.config.keys import Listeners, Tls


def require_certificates(listeners: Listeners) -> None:
    """Raises ConfigError with all that is wrong with the certificate files of any listener, before
    anything else is begun."""
    problems: list[str] = []
    for name, listener in listeners.enabled().items():
        if listener.tls is not None:
            try:
                server_context(name, listener.tls)
            except ConfigError as error:
                problems += error.problems
    if problems:
        raise ConfigError(problems)


def server_context(name: str, tls: Tls) -> ssl.SSLContext:
    """Makes a context for TLS 1.2 or newer; with `verify_client` only for clients whose certificate
    `ca` signed."""
    key = f"listeners.{name}.tls"
    for part, path in (("cert", tls.cert), ("key", tls.key), ("ca", tls.ca)):
        if path is not None and not path.is_file():
            raise ConfigError([f"{key}.{part}: {path} is not a file that can be read"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2, which costs us more than the client
    try:
        context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError) as error:
        reason = f"{tls.cert} and {tls.key} are no certificate and its key in PEM form ({error})"
        raise ConfigError([f"{key}: {reason}"]) from error
    if tls.ca is not None:
        try:
            context.load_verify_locations(tls.ca)
        except (ssl.SSLError, OSError) as error:
            reason = f"{tls.ca} holds no certificates in PEM form ({error})"
            raise ConfigError([f"{key}.ca: {reason}"]) from error
        # A certificate that is not asked for is never shown; with ca alone it is welcome.
        context.verify_mode = ssl.CERT_REQUIRED if tls.verify_client else ssl.CERT_OPTIONAL
    return context
