"""A wheel holds the documentation as a site."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from taskstore_project.documentation.building import build

        self.place = tempfile.TemporaryDirectory()
        site = Path(self.place.name, "site")
        build(Path(self.root), site, strict=True)
        build_data["force_include"][str(site)] = "taskstore_project/documentation/site"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "place"):
            self.place.cleanup()
