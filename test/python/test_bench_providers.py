#!/usr/bin/env python3
"""./dev bench providers: both providers of ONNX Runtime in one process, on a small model.

    python test/python/test_bench_providers.py        GQAC_ORT names the library
"""

import contextlib
import io
import json
import os
import sys
from unittest import mock

import harness
from harness import Case, ROOT
from ort_sessions import LIBRARY, since

sys.path.insert(0, str(ROOT / "bench"))
import models  # noqa: E402
import providers  # noqa: E402
import records  # noqa: E402
import rows  # noqa: E402


class Providers(Case):
    """The driver on two rows."""

    def setUp(self):
        super().setUp()
        self.addCleanup(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        made = {row.name: row for row in (rows.in_session("tiny", form, past, new)
                                          for form, past, new in (("int4", 9, 1), ("f32", 0, 12)))}
        for target, name, value in ((models, "HOME", self.dir), (rows, "BY_NAME", made),
                                    (providers, "REST", 0.001), (providers.engines, "SAMPLE_MS", 1)):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def measure(self, *more):
        """(exit status, lines of the table)."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            status = providers.main(["--only", ",".join(rows.BY_NAME), "--threads", "1", "--pairs", "2",
                                     "--library", str(LIBRARY), *map(str, more)])
        return status, out.getvalue().splitlines()

    @since(25, "does not know plugins by their names")
    def test_records(self):
        """The times of both and their ratio; logits that are close, but come from two different
        providers."""
        out = self.dir / "out.jsonl"
        status, lines = self.measure("--out", out)
        self.assertEqual((status, len(lines)), (0, 4))
        for text in out.read_text().splitlines():
            record = json.loads(text)
            self.assertEqual(records.check(record), [])
            found = record["results"]
            self.assertGreater(min(found["CPU_ms"], found["gqac_ms"], found["ratio"], found["difference"]), 0)
            self.assertEqual([len(times) for times in record["samples"].values()], [2, 2])
        with mock.patch.object(providers, "TOLERANCE", {"int4": 0, "f32": 0}):
            self.assertEqual(self.measure()[0], 1)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
