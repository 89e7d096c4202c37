"""The runs of `manage.py test`, and the servers and browser that they need."""

import ssl
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
# For httpx without TLS: otherwise each request loads all trusted certificates, which takes 30 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class CannotTest(Exception):
    """Something that the tests need is missing; the message names the remedy."""
