"""Which process answers: a restart, or a second process, has another instance id."""

from __future__ import annotations

import secrets
from typing import Final

INSTANCE: Final = secrets.token_hex(8)
