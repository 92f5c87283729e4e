#!/usr/bin/env python3
"""Threads and models at the same time, on a library that was built with ThreadSanitizer:

    ./dev build tsan
    LD_PRELOAD=$(gcc -print-file-name=libtsan.so) GQAC_LIBRARY=build/tsan/libgqac.so \\
      PYTHONPATH=python TSAN_OPTIONS=exitcode=66 build/venv/bin/python python/tests/threads.py

Exit code 66: a race was found. Python itself is not instrumented, so only races inside the library
are seen.
"""

import sys
import threading
from pathlib import Path

import gqac

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny-gqa"


def use(models, number, failed):
    """What one thread does with all models."""
    try:
        for model, expected in models:
            assert model.generate("She had been", max_new_tokens=6).ids == expected
            sequence = model.sequence()
            sequence.step(range(1, 30))
            sequence.fork().step([number])
            stream = model.generate("She had been", max_new_tokens=6, stream=True)
            assert [piece.id for piece in stream] == expected
    except BaseException as error:
        failed.append(error)


def main():
    """Threads x models, and a scheduler with a store beside them."""
    failed = []
    with gqac.Model(TINY, threads=2) as a, gqac.Model(TINY, threads=1) as b:
        models = [(m, m.generate("She had been", max_new_tokens=6).ids) for m in (a, b)]
        store = gqac.PrefixStore(a)
        with gqac.Scheduler(a, store=store) as scheduler:
            threads = [threading.Thread(target=use, args=(models, i, failed)) for i in range(4)]
            for thread in threads:
                thread.start()
            answers = [scheduler.submit("She had been", max_new_tokens=6) for _ in range(6)]
            assert all(x.result().ids == models[0][1] for x in answers)
            for thread in threads:
                thread.join()
        store.close()
    print("failed" if failed else "passed", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
