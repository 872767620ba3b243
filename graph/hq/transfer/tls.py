"""Which certificates count, and what to say when one does not.

The user's environment decides: ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` or the system's certificates
(OpenSSL reads those itself), ``REQUESTS_CA_BUNDLE`` and ``CURL_CA_BUNDLE`` besides, and the folder
where Docker keeps the authorities of one registry. A Python that has no system certificates at all
falls back to certifi's.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final

from hq.model.errors import HqError, InfrastructureError, Location, UsageError

_DOCKER_CERTS: Final = "/etc/docker/certs.d"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def tls_context(environment: Mapping[str, str], host: str) -> ssl.SSLContext:
    """A context that trusts what the user's environment trusts.

    Raises ``UsageError`` when the environment names certificates that cannot be read.
    """
    context = ssl.create_default_context()
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        place = environment.get(variable)
        if place:
            _trust(context, place, variable)
    folder = f"{_DOCKER_CERTS}/{host}"
    if os.path.isdir(folder):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".crt"):
                _trust(context, f"{folder}/{name}", folder)
    if not context.cert_store_stats()["x509_ca"] and not _system_folder():
        _trust_certifi(context)
    return context


def _trust(context: ssl.SSLContext, place: str, named_by: str) -> None:
    try:
        if os.path.isdir(place):
            context.load_verify_locations(capath=place)
        else:
            context.load_verify_locations(cafile=place)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"the certificates that {named_by} names cannot be read",
            where=Location(place),
            hint="give a file of PEM certificates, or a folder of them with hashed names",
        ) from error


def _system_folder() -> bool:
    # OpenSSL looks into its folder only when it verifies, so the context's counts miss it.
    folder = ssl.get_default_verify_paths().capath
    return bool(folder and os.path.isdir(folder) and os.listdir(folder))


def _trust_certifi(context: ssl.SSLContext) -> None:
    try:
        import certifi
    except ImportError:
        return
    context.load_verify_locations(cafile=certifi.where())


def tls_error(cause: BaseException, host: str) -> HqError | None:
    """The error for TLS that will not come right by trying again."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return InfrastructureError(
            f"the certificate of {host} is not trusted",
            details=[f"TLS: {cause.verify_message or cause.reason}"],
            hint="name the authority's certificate with SSL_CERT_FILE, or ask who runs the host",
        )
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
        return InfrastructureError(
            f"{host} does not speak TLS",
            hint="if it is meant to speak plain http, say so with --plain-http",
        )
    return None
