"""Format, lint and types."""

import subprocess
import sys

from . import PROJECT

GATES = {
    "format": ("ruff", "format", "--check", "--output-format", "concise"),
    "lint": ("ruff", "check", "--output-format", "concise"),
    "types": ("mypy",),
}


def failing_gates(environment: dict[str, str]) -> list[str]:
    """Run every gate and return the names of those that complained."""
    return [name for name, command in GATES.items() if not passes(name, command, environment)]


def passes(name: str, command: tuple[str, ...], environment: dict[str, str]) -> bool:
    print(f"== {name}: {' '.join(command)}", flush=True)
    done = subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, env=environment, check=False)
    return done.returncode == 0
