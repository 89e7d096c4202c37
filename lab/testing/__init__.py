"""The runs of `manage.py test`, and the servers and browser that they need."""

import ssl
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
# For httpx without TLS: otherwise each request loads all trusted certificates, which takes 30 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class CannotTry(Exception):
    """A test, a scene or a benchmark lacks something that it needs; the message names it and the remedy."""
