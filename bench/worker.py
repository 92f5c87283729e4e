"""Shared by the Python engines of the benchmark: their arguments and the loop that answers
commands. worker_gqac.c describes the words and lines."""

import json
import os
import sys
import time
from types import SimpleNamespace

import numpy as np


class Engine:
    """Subclasses define open_run or open_sequences, run or run_sequence, output and version."""

    def __init__(self, arguments):
        self.a = arguments

    def ids(self, past, tokens, sequence=0):
        """Tokens past .. past + tokens - 1 of a sequence."""
        first = past + sequence
        return (np.arange(first, first + tokens, dtype=np.int64) * 7919 + 13) % self.a.vocab


def parse(words):
    """key=value words; input and row may be repeated, and name .npy files."""
    a = SimpleNamespace(kind="run", threads=1, past=0, tokens=1, calls=1, vocab=1, rotate=1,
                        batch=1, math="model", heads=0, kv_heads=0, head=0, library="", provider="",
                        files={})
    for word in words:
        key, _, value = word.partition("=")
        if key in ("input", "row"):
            name, _, path = value.partition(":")
            a.files[name] = np.load(path)
        else:
            setattr(a, key, int(value) if isinstance(getattr(a, key, ""), int) else value)
    return a


def main(engine_class):
    """Open what the arguments name, print ready, and answer stdin."""
    out = os.fdopen(os.dup(1), "w")  # libraries may print to stdout itself
    os.dup2(2, 1)

    def say(text):
        out.write(text + "\n")
        out.flush()

    a = parse(sys.argv[1:])
    try:
        began = time.perf_counter()
        engine = engine_class(a)
        opened = time.perf_counter() - began
        if a.kind == "run":
            engine.open_run(a.files)
            once = engine.run
        else:
            engine.open_sequences(a.files)
            once = engine.run_sequence
    except Exception as error:  # any exception of a library is the reason why this engine does not
                                # take part
        say("failed " + " ".join(str(error).split())[:400])
        return 1
    say("ready " + json.dumps({"version": engine.version(), "open_ms": 1e3 * opened}))
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "run":
            say("times " + " ".join(f"{1e3 * once():.6f}" for _ in range(int(rest))))
        elif word == "output":
            np.asarray(engine.output(), dtype=np.float32).tofile(rest)
            say("done")
    return 0
