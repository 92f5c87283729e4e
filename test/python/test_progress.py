#!/usr/bin/env python3
"""Progress messages of long calls on stderr, and the default number of threads.

    python test/python/test_progress.py        prints `N passed, N failed`
"""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import harness
from harness import Case, GQAC, write_ids

TINY = harness.ROOT / "models" / "tiny-gqa"


class Progress(Case):

    def score(self, pause, *args, stderr=subprocess.PIPE):
        """A score of many tokens that pauses for some seconds in the middle."""
        ids = write_ids(self.dir / "ids", [1 + i % 200 for i in range(1270)])
        child = subprocess.Popen([GQAC, "score", TINY, "--ids", ids, "--target", "ref", *args],
                                 stdout=subprocess.PIPE, stderr=stderr, env=harness.environment())
        self.addCleanup(lambda: (child.kill(), child.wait()))
        harness.await_work(child, 10)
        child.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        child.send_signal(signal.SIGCONT)
        return child

    def test_bar(self):
        """On a terminal: a bar, which is removed at the end."""
        leader, follower = pty.openpty()
        child = self.score(0.7, stderr=follower)
        os.close(follower)
        out = child.communicate(timeout=60)[0]
        seen = os.read(leader, 1 << 16).decode()
        os.close(leader)
        self.assertEqual(child.returncode, 0)
        self.assertTrue(out.startswith(b"tokens 1270"))
        self.assertRegex(seen, r"\r\[#*\.*\] +\d+ %  score")
        self.assertTrue(seen.endswith("\r\033[K"), repr(seen))

    def test_line(self):
        """Elsewhere: a line after 5 seconds; with -q none."""
        loud, quiet = self.score(5.1), self.score(5.1, "-q")
        for child, want in ((loud, rb"^gqac: score: \d+ of 1270 tokens\n"), (quiet, rb"^$")):
            out, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 0)
            self.assertRegex(err, want)

    def test_short(self):
        """Short calls print nothing."""
        ids = write_ids(self.dir / "ids", [1, 2, 3])
        done = subprocess.run([GQAC, "score", TINY, "--ids", ids], capture_output=True,
                              env=harness.environment(), timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_threads(self):
        """The default is the number of processors that the process may use; the environment and the
        flag override it."""
        def threads(mask, *args, **env):
            full = {k: v for k, v in harness.environment().items() if k != "GQAC_THREADS"} | env
            done = subprocess.run([GQAC, "bench", TINY, "-p", "4", "-n", "1", "--repeat", "1", "--format", "json",
                                   *args], capture_output=True, env=full, timeout=60,
                                  preexec_fn=lambda: os.sched_setaffinity(0, mask))
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["threads"]
        all_of_them = os.sched_getaffinity(0)
        one = {min(all_of_them)}
        self.assertEqual(threads(one), 1)
        self.assertEqual(threads(one, GQAC_THREADS="3"), 3)
        self.assertEqual(threads(one, "--threads", "2", GQAC_THREADS="3"), 2)
        self.assertIn(threads(all_of_them), range(1, len(all_of_them) + 1))


if __name__ == "__main__":
    sys.exit(harness.main())
