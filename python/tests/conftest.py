"""What the tests of the package share, and the line that ./dev test sums."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "models" / "tiny-gqa"
MODELS = ROOT / "test" / "models"
os.environ.setdefault("GQAC_LIBRARY", str(ROOT / "build" / "release" / "libgqac.so"))

import gqac  # noqa: E402

long = pytest.mark.skipif(os.environ.get("GQAC_TEST_FULL") != "1", reason="long tier")


@pytest.fixture(scope="session")
def model():
    """The bundled model, on one thread."""
    with gqac.Model(TINY, threads=1) as opened:
        yield opened


def pytest_terminal_summary(terminalreporter):
    """The last line, as the other tests print it."""
    numbers = {k: len(terminalreporter.stats.get(k, [])) for k in ("passed", "failed", "error", "skipped")}
    skipped = f", {numbers['skipped']} skipped" if numbers["skipped"] else ""
    terminalreporter.write_line(f"{numbers['passed']} passed, "
                                f"{numbers['failed'] + numbers['error']} failed{skipped}")
