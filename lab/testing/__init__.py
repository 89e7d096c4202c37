"""What `manage.py test` runs, and what it starts for that."""

import ssl
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
# For httpx where nothing is encrypted: each of its requests would read all trusted certificates, which takes 30 ms.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class CannotTest(Exception):
    """Something the tests need can't be had; the text names the remedy."""
