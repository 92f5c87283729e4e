#!/usr/bin/env python3
"""What tools/analyse.py keeps between two runs: nothing that is wrong after a change of the
configuration.

    python test/lint/test_analyse.py         prints `N passed, N failed`
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import analyse
from cases import Cases


def main():
    """The folder of cppcheck belongs to its configuration."""
    cases = Cases()
    with tempfile.TemporaryDirectory() as folder:
        config, out = Path(folder) / "cppcheck.cfg", Path(folder) / "cppcheck"
        out.mkdir()
        (out / "old.a1").write_text("of a run before there were such folders")
        config.write_text("one")
        first = analyse.cppcheck_state(config, out)
        (first / "source.a1").write_text("found")
        cases.count(analyse.cppcheck_state(config, out) == first and (first / "source.a1").exists(),
                    "what was found is forgotten, though nothing has changed")
        config.write_text("two")
        second = analyse.cppcheck_state(config, out)
        cases.count(second != first and not list(second.iterdir()),
                    "the configuration has changed, and what was found stays")
        cases.count(list(out.iterdir()) == [second], "another configuration leaves files behind")
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
