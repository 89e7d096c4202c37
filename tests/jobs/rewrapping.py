"""A module that replaces standard output when it is imported, as programs do to set its encoding."""

import io
import sys

from .sample import say  # noqa: F401 - a job.

sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
