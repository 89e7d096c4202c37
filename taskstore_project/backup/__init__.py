"""Back up the whole store in one file, in a format for both databases.

The file is a zip archive: `manifest.json`, and for each table its rows as lines of JSON. Each part has a checksum.
"""

from .file import FORMAT, Manifest, write
from .restoring import restore

__all__ = ["FORMAT", "Manifest", "restore", "write"]
