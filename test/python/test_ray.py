#!/usr/bin/env python3
"""gqac.ray: two replicas on Ray Serve return the ids of a single model, and a session stays on its
replica and finds its cache there; with a Redis server, new replicas reuse what others have
computed. Ray is installed into build/ray, from tools/requirements-ray.txt.

    GQAC_TEST_FULL=1 python test/python/test_ray.py
"""

import filecmp
import json
import os
import shutil
import subprocess
import sys

import harness
from harness import Case, FULL, GQAC, ROOT, SANITIZED
from serving import TINY
from tiers import Redis

HOME = ROOT / "build" / "ray"
WANTED = ROOT / "tools" / "requirements-ray.txt"


def python():
    """The interpreter of the environment, which is created first if it is missing or outdated."""
    if not (HOME / "requirements").exists() or not filecmp.cmp(WANTED, HOME / "requirements"):
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
        subprocess.run([HOME / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r",
                        WANTED], check=True)
        shutil.copy(WANTED, HOME / "requirements")
    return HOME / "bin" / "python"


@harness.unittest.skipUnless(FULL, "long tier: installs and runs Ray")
@harness.unittest.skipIf(SANITIZED, "Python lacks the run time of a sanitizer")
class Ray(Case):
    """One run, whose results the test checks."""

    def test_replicas(self):
        """Bits, affinity, streams, errors, and reuse through a Redis server."""
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"),
               "GQAC_LIBRARY": str(GQAC.parent / "libgqac.so"), "RAY_USAGE_STATS_ENABLED": "0",
               "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "60",  # for busy machines
               "RAY_worker_niceness": "0"}
        with Redis() as redis:
            done = subprocess.run(
                [python(), ROOT / "test" / "python" / "ray_replicas.py", TINY, redis.url],
                env=env, capture_output=True, text=True, timeout=1500)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        found = json.loads(done.stdout.splitlines()[-1])
        for session, (first, second) in found["sessions"].items():
            self.assertEqual(first["ids"], found["alone"][session])
            self.assertEqual(second["ids"], first["ids"])
            self.assertEqual(second["reused_tokens"], 99)
        self.assertEqual(len(set(found["pids"].values())), 2)
        self.assertEqual(found["streamed"], found["alone"]["session 0"])
        self.assertIn("the prompt of a request is empty", found["error"])
        first, second = found["shared"]["answers"]
        for session, one, other in zip(found["alone"], first, second):
            self.assertEqual((one["ids"], other["ids"]), (found["alone"][session],) * 2)
        self.assertEqual([one["reused_tokens"] for one in second], [64] * len(second))
        self.assertEqual((found["shared"]["saved"], found["shared"]["errors"]), (len(first), 0))


if __name__ == "__main__":
    sys.exit(harness.main())
