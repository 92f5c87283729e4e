#!/usr/bin/env python3
"""The corpus of bad model files, generated for every run.

    python test/corpus/make_bad.py DIR      writes DIR/<class>/<number>/{bad,twin}/model.onnx

Each row has the name of a fault, a builder of a file with it, the expected exit code and a word in
the message, and a builder of its valid twin: the most similar file without the fault, which must be
accepted. Rows are in bad_wire.py, bad_tensors.py, bad_external.py, bad_graph.py, bad_growth.py and
bad_attention.py; the reproducer of a fixed bug becomes a row.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bad_attention  # noqa: E402  (needs the path)
import bad_external  # noqa: E402
import bad_graph  # noqa: E402
import bad_growth  # noqa: E402
import bad_tensors  # noqa: E402
import bad_wire  # noqa: E402

ROWS = [row for source in (bad_wire, bad_tensors, bad_external, bad_graph, bad_growth, bad_attention)
        for row in source.ROWS]


def arguments(row, folder):
    """The command line of gqac for the files that a builder wrote to `folder`."""
    model = folder / "model.onnx"
    return [row.verb, model] + (["--inputs", folder / "in"] if row.verb == "run" else [])


def main():
    """Write everything."""
    root = Path(sys.argv[1])
    for i, row in enumerate(ROWS):
        for label, build in (("bad", row.bad), ("twin", row.twin)):
            folder = root / row.kind / f"{i:03}" / label
            folder.mkdir(parents=True)
            build(folder)
        (root / row.kind / f"{i:03}" / "name.txt").write_text(f"{row.name}\n{row.code}\n")
    print(len(ROWS), "rows")


if __name__ == "__main__":
    main()
