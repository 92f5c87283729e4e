"""The Python blocks of the documentation run, and print what the pages show; so do the examples."""

import doctest
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, TINY

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_blocks(page, tmp_path, monkeypatch):
    text = (ROOT / page).read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page, page, 0)
    assert test.examples
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    said = []
    runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


def example(name, *words):
    """What a program of python/examples prints."""
    done = subprocess.run([sys.executable, ROOT / "python" / "examples" / name, *map(str, words)],
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
                          capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_examples(tmp_path):
    text = tmp_path / "lines.txt"
    text.write_text("It was a fine day.\nxq zzv kkw\n")
    assert [line.split()[1] for line in example("batch_scores.py", TINY, text)] == ["xq", "It"]
    rows = example("equivalence.py", TINY / "model.onnx")[1:]
    assert len(rows) == 31 and all(line.split()[2] == "0" for line in rows)
    rows = example("first_token.py", TINY)
    assert [int(line.split()[0]) for line in rows] == list(range(0, 512, 64))
    assert all(float(line.split()[3]) > 0 for line in rows)
