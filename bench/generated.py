"""Runs of `gqac generate`, pinned to cores, for the drivers that measure them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import engines

GQAC = Path(os.environ.get("GQAC", engines.ROOT / "build" / "release" / "gqac"))


def generate(model, threads: int, *flags) -> dict:
    """The JSON that it prints."""
    command = [str(GQAC), "generate", str(model), *map(str, flags), "--threads", str(threads),
               "--format", "json"]
    run = subprocess.run(command, capture_output=True, text=True,
                         preexec_fn=engines.pinned(threads))
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)
