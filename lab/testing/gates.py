"""Format, lint and types: `python -m lab.testing.gates`."""

import subprocess
import sys

from . import PROJECT

GATES = {
    "format": ("ruff", "format", "--check", "--output-format", "concise"),
    "lint": ("ruff", "check", "--output-format", "concise"),
    "types": ("mypy",),
}


def passes(name: str) -> bool:
    command = GATES[name]
    print(f"== {name}: {' '.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, check=False).returncode == 0


def main() -> None:
    failing = [name for name in GATES if not passes(name)]
    if failing:
        sys.exit(f"failed: {', '.join(failing)}")


if __name__ == "__main__":
    main()
