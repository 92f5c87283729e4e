"""Runs of `gqac generate`, pinned to cores, for the drivers that measure them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from records import ROOT

GQAC = Path(os.environ.get("GQAC", ROOT / "build" / "release" / "gqac"))


def generate(model, threads: int, *flags) -> dict:
    """The JSON that it prints."""
    command = [str(GQAC), "generate", str(model), *map(str, flags), "--threads", str(threads),
               "--format", "json"]
    cores = sorted(os.sched_getaffinity(0))[:threads]
    run = subprocess.run(command, capture_output=True, text=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)
