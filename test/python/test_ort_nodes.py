#!/usr/bin/env python3
"""Random GroupQueryAttention nodes in sessions of ONNX Runtime with the provider, and many sessions
one after another. The nodes are those of test_gqa_ort.py; results have the bits of `gqac run`."""

import gc
import random
import sys

import numpy as np
import onnx

import harness
import test_gqa_ort as gqa
from harness import FULL, MODELS, model
from ort_sessions import Sessions, read, session, since

COUNT = 360 if FULL else 12  # of each seed
REFUSED = 0.05  # maximum share of nodes that ONNX Runtime does not accept


class Nodes(Sessions):
    """Each node is a session of its own, from bytes."""

    def setUp(self):
        super().setUp()
        self.tool = gqa.Nodes()
        self.tool.dir = self.dir

    def check_group(self, nodes):
        """Returns how many of the nodes ONNX Runtime accepted."""
        taken = 0
        for number, (node, expected) in enumerate(zip(nodes, self.tool.ours(nodes), strict=True)):
            source = gqa.model_of([node.parts()]).SerializeToString()
            if node.peer() is None:
                continue
            taken += 1
            opened = session(source, optimise=number % 2 == 0)
            found = opened.run(node.outputs, node.feeds)
            for name, got, want in zip(node.outputs, found, expected, strict=True):
                for x, y in self.tool.rows_of(node, name, got, want):
                    self.assertEqual(x.tobytes(), y.tobytes(), f"{name}: {node}")
        return taken

    @since(30, "has other inputs of GroupQueryAttention")
    def test_random(self):
        """The same nodes every time, and some new ones."""
        for seed in (20, gqa.FRESH):
            print(f"GQAC_TEST_SEED={seed}")
            pick, rng = random.Random(seed), np.random.default_rng(seed)
            nodes = [gqa.Node(pick, rng) for _ in range(COUNT)]
            taken = sum(self.check_group(nodes[i:i + gqa.GROUP])
                        for i in range(0, COUNT, gqa.GROUP))
            print(f"{taken} of {COUNT} compared")
            self.assertGreaterEqual(taken, COUNT * (1 - REFUSED) - 1)


class Memory(Sessions):
    """Sessions leak nothing."""

    @staticmethod
    def resident():
        """Bytes of resident memory."""
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    def test_many(self):
        """The slope of resident memory over sessions from a file, from bytes, of a context model,
        and sessions that fail."""
        path, rounds = self.dir / "c.onnx", 250 if FULL else 12
        session(str(model("llama")), settings={"ep.context_enable": "1",
                                               "ep.context_file_path": str(path)})
        damaged = self.dir / "d.onnx"
        damaged.write_bytes(path.read_bytes().replace(b"c.gqac", b"d.gqac"))
        (self.dir / "d.gqac").write_bytes((self.dir / "c.gqac").read_bytes()[:9000])
        source = onnx.load(model("llama")).SerializeToString()
        feeds = read(MODELS / "llama" / "ref" / "decode" / "inputs")
        want = session(source).run(["logits"], feeds)[0].tobytes()
        seen = []
        for _ in range(rounds):
            for each in (str(model("llama")), source, str(path)):
                opened = session(each)
                self.assertEqual(opened.run(["logits"], feeds)[0].tobytes(), want)
                del opened
            with self.assertRaisesRegex(Exception, "damaged"):
                session(str(damaged))
            seen.append(self.resident())
        half = seen[len(seen) // 2:]
        slope = np.polyfit(np.arange(len(half)), half, 1)[0]
        print(f"{slope / 1024:.1f} KiB for 4 sessions")
        if FULL:  # a model of 1 MiB: leaking it, or a context, would be far more
            self.assertLess(slope, 16 << 10)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
