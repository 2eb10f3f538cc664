"""AWS's signature, version 4, of one request to an S3 API."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"


class Keys(NamedTuple):
    """Credentials, and the region that they sign for."""

    name: str
    secret: str
    region: str
    session: str = ""
    """The token of temporary credentials."""


def signed(
    method: str, path: str, headers: Mapping[str, str], digest: str, keys: Keys, at: str
) -> dict[str, str]:
    """The headers to send for a path without a query: those given (`host` among them) and the
    signature's own. `digest` is the body's SHA-256, `at` the time as `20130524T000000Z`."""
    more = {"x-amz-content-sha256": digest, "x-amz-date": at}
    if keys.session:
        more["x-amz-security-token"] = keys.session
    sent = dict(
        sorted({**{name.lower(): value for name, value in headers.items()}, **more}.items())
    )
    names = ";".join(sent)
    lines = "".join(f"{name}:{value.strip()}\n" for name, value in sent.items())
    whole = "\n".join((method, quote(path, safe="/-_.~"), "", lines, names, digest))
    scope = f"{at[:8]}/{keys.region}/s3/aws4_request"
    text = "\n".join((ALGORITHM, at, scope, hashlib.sha256(whole.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.name}/{scope}"
    sent["authorization"] = f"{ALGORITHM} {credential},SignedHeaders={names},Signature={signature}"
    return sent
