"""How long the import of the package takes."""

import shutil

import import_time
from conftest import ROOT


def test_import_time(tmp_path, monkeypatch):
    """Less than the limit of a processor's time besides NumPy. The copy has files of byte code, as an
    installed package has them."""
    shutil.copytree(ROOT / "python" / "gqac", tmp_path / "gqac")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert import_time.best() < import_time.LIMIT
