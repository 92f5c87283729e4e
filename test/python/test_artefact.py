#!/usr/bin/env python3
"""Artefacts: the same results as the model from which they were made, and all damage is detected.

    python test/python/test_artefact.py
"""

import shutil
import struct
import sys

import harness
from harness import Case, FULL, MODELS, TOLERANCE, gqac, model

HEADER, ROW, PAGE = 64, 192, 4096
META, GRAPH, TENSORS, WEIGHTS = range(4)
TRACED = harness.ROOT / "test" / "traced" / "llama" / "model.onnx"


def sections(data):
    """The number of sections: four, and one for each attached file."""
    return struct.unpack_from("<I", data, 24)[0]


def table(data):
    """(offset, length) of each section."""
    return [struct.unpack_from("<QQ", data, HEADER + ROW * s + 128) for s in range(sections(data))]


def head(data):
    """The bytes of header and table."""
    return HEADER + ROW * sections(data)


def flipped(data, at, bit=0):
    """The bytes with one bit flipped."""
    out = bytearray(data)
    out[at] ^= 1 << bit
    return bytes(out)


class Same(Case):
    """An artefact behaves like its model."""

    def results(self, source, name):
        """All outputs of the verbs for a model file, as bytes."""
        ref, out = MODELS / name / "ref", self.dir / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.good("score", source, "--ids", ref / "ids.txt", "--logits", self.dir / "l.npy")
        found = {"logits": (self.dir / "l.npy").read_bytes()}
        if (ref / "hybrid").is_dir():
            self.good("run", source, "--inputs", ref / "hybrid" / "inputs", "-o", out)
            found.update({p.name: p.read_bytes() for p in out.iterdir()})
        told = self.good("equiv", source, "--tokens", 12, "--splits", "5", "--format", "json")
        found["compared"] = told.json()["compared"]
        told = self.good("inspect", source, "--format", "json").json()
        found["io"] = [told[k] for k in ("parameters", "inputs", "outputs", "kv_pairs", "mixing")]
        return found

    def compiled(self, name, *flags):
        """The path of a new artefact."""
        path = self.dir / f"{name}.gqac"
        self.good("compile", model(name), "-o", path, *flags)
        return path

    def test_made_twice(self):
        """Two runs write the same file; so does compiling an artefact, except for its source
        path."""
        first = self.compiled("llama").read_bytes()
        self.assertEqual(self.compiled("llama").read_bytes(), first)
        self.good("compile", self.dir / "llama.gqac", "-o", self.dir / "again.gqac")
        self.check(gqac("generate", self.dir / "llama.gqac", "--target", "cuda", "--prompt", "x"), 2,
                   "unknown target 'cuda'")
        again = (self.dir / "again.gqac").read_bytes()
        for s in (GRAPH, TENSORS, WEIGHTS):
            (a, n), (b, m) = table(first)[s], table(again)[s]
            self.assertEqual(first[a:a + n], again[b:b + m])

    def test_options(self):
        """Another target or math is a usage error that says so; the same one is accepted."""
        path = self.compiled("llama", "--math", "exact")
        ids = MODELS / "llama" / "ref" / "ids.txt"
        self.check(gqac("score", path, "--ids", ids), 2, "exact", "model")
        self.check(gqac("run", path), 2, "exact")
        self.check(gqac("equiv", path), 2, "exact")
        self.good("score", path, "--ids", ids, "--math", "exact")
        told = self.good("inspect", path, "--format", "json").json()
        self.assertEqual(told["artefact"]["math"], "exact")
        self.assertEqual(told["artefact"]["target"], "cpu")
        path = self.compiled("llama")
        for flags in (("--math", "exact"), ("--seqlens-k", "cached"), ("--legacy-window",),
                      ("--per-row-quant",)):
            self.check(gqac("score", path, "--ids", ids, *flags), 2, flags[0].strip("-"))

    def test_disabled(self):
        """Passes that were disabled for an artefact are also disabled in an artefact made from
        it."""
        first, again = self.dir / "first.gqac", self.dir / "again.gqac"
        told = self.good("inspect", TRACED, "--ops", "--format", "json").json()
        self.assertTrue(told["raised"])
        self.good("compile", TRACED, "--stateless", "--disable", "raise,fold", "-o", first)
        self.good("compile", first, "--stateless", "--disable", "simplify", "-o", again)
        self.assertIn(b"\ndisable simplify,raise,fold\n", again.read_bytes())
        for path in (first, again):
            told = self.good("inspect", path, "--ops", "--format", "json").json()
            self.assertEqual(told["raised"], {})
            ran = gqac("run", path, "-v").err
            self.assertIn("pass lower", ran)
            self.assertNotIn("pass raise", ran)

    def test_cached(self):
        """Artefacts for the other convention of lengths keep it."""
        path = self.compiled("llama", "--seqlens-k", "cached")
        ids = MODELS / "llama" / "ref" / "ids.txt"
        self.check(gqac("score", path, "--ids", ids), 2, "cached")

    def test_name_does_not_matter(self):
        """An artefact is recognised by its magic."""
        path = self.compiled("llama").rename(self.dir / "model.bin")
        self.assertEqual(self.good("inspect", path, "--format", "json").json()["format"], "gqac")

    def test_write(self):
        """An existing file is replaced as a whole; a failed run does not change it."""
        path = self.dir / "o.gqac"
        path.write_text("old")
        bad = self.dir / "bad.onnx"
        bad.write_bytes(b"\x08")
        self.check(gqac("compile", bad, "-o", path), 3)
        self.assertEqual(path.read_text(), "old")
        self.good("compile", model("llama"), "-o", path)
        self.assertIn("every checksum", self.good("inspect", path, "--verify").err)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["bad.onnx", "o.gqac"])


def add_models():
    """Adds a method for each model: the same bytes."""
    for name in sorted(TOLERANCE):
        def test(self, name=name):
            self.assertEqual(self.results(self.compiled(name), name),
                             self.results(model(name), name))
        setattr(Same, f"test same bytes {name}", test)


class Damage(Case):
    """Damaged artefacts are refused."""

    @classmethod
    def setUpClass(cls):
        """One artefact for all."""
        cls.folder = harness.tempfile.TemporaryDirectory(prefix="gqac-test-")
        path = harness.Path(cls.folder.name) / "m.gqac"
        result = gqac("compile", model("llama-int4-acc4"), "-o", path)
        assert result.code == 0, str(result)
        cls.data = path.read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, data, label, *flags, name="m.gqac"):
        """inspect exits with 3."""
        path = self.dir / name
        path.write_bytes(data)
        result = gqac("inspect", path, *flags, seconds=20, memory=harness.GIB)
        self.assertEqual(result.code, 3, f"{label}: {result}")
        self.check(result, 3)

    def test_whole(self):
        """The undamaged one is accepted."""
        path = self.dir / "m.gqac"
        path.write_bytes(self.data)
        self.good("inspect", path, "--verify")

    def test_truncated(self):
        """Truncated at any point."""
        size = len(self.data)
        ends = [o + d for o, n in table(self.data) for d in (-1, 0, 1, n - 1, n)]
        cuts = {*range(0, HEADER + 8, 1 if FULL else 9), *ends, size // 2, size - 1,
                *range(0, size, 512 if FULL else size // 40)}
        for cut in sorted(c for c in cuts if 0 <= c < size):
            self.refused(self.data[:cut], f"cut at {cut}")

    def test_header_bits(self):
        """Every byte of header and table (every bit in the long tier)."""
        for at in range(head(self.data)):
            for bit in range(8) if FULL else (at % 8,):
                self.refused(flipped(self.data, at, bit), f"bit {bit} of byte {at}")

    def test_pages(self):
        """One bit in every page: detected at once before the weights, by --verify in the
        weights."""
        weights = table(self.data)[WEIGHTS][0]
        for at in range(head(self.data), len(self.data), PAGE if FULL else 3 * PAGE):
            flags = ("--verify",) if at >= weights else ()
            self.refused(flipped(self.data, at, at % 8), f"byte {at}", *flags)
        for s, (offset, length) in enumerate(table(self.data)):
            for at in (offset, offset + length - 1):
                flags = ("--verify",) if s >= WEIGHTS else ()
                self.refused(flipped(self.data, at), f"section {s}, byte {at}", *flags)

    def test_made_again(self):
        """Damaged weights do not get a new, valid checksum, nor a certificate; undamaged ones can
        be exported."""
        path, out = self.dir / "m.gqac", self.dir / "again"
        at = table(self.data)[WEIGHTS][0] + 5000
        path.write_bytes(flipped(self.data, at))
        for words in (("compile", path, "-o", out),
                      ("equiv", path, "--tokens", 5, "--splits", 3, "--certificate", out)):
            self.check(gqac(*words), 3)
            self.assertFalse(out.exists())
        path.write_bytes(self.data)
        self.good("compile", path, "--emit", "onnx", "-o", self.dir / "m.onnx")
        ids = self.dir / "ids"
        ids.write_text("1 5 9 2")
        whole, exported = (self.good("score", p, "--ids", ids, "--format", "json").json()
                           for p in (path, self.dir / "m.onnx"))
        self.assertEqual(whole, exported)

    def test_sections(self):
        """Swapped rows of the table, swapped names, missing sections."""
        for a, b in ((META, GRAPH), (GRAPH, TENSORS), (TENSORS, WEIGHTS)):
            rows = [self.data[HEADER + ROW * s:HEADER + ROW * (s + 1)] for s in range(sections(self.data))]
            rows[a], rows[b] = rows[b], rows[a]
            self.refused(self.data[:HEADER] + b"".join(rows) + self.data[head(self.data):],
                         f"rows {a} and {b} swapped")
        (a, n), (b, m) = table(self.data)[META], table(self.data)[GRAPH]
        swapped = self.data[:a] + self.data[b:b + m] + self.data[a + n:b] + self.data[a:a + n] \
            + self.data[b + m:]
        self.refused(swapped, "meta and graph swapped")

    def test_junk(self):
        """Bytes after the end or before the start, and nonzero padding."""
        for junk in (b"\0", b"x", bytes(PAGE), self.data):
            self.refused(self.data + junk, "junk behind")
        self.refused(b"\0" + self.data, "junk before")
        rows = table(self.data)
        for (offset, length), (following, _) in zip(rows, rows[1:]):
            if offset + length < following:
                self.refused(flipped(self.data, offset + length), "padding")

    def test_foreign(self):
        """Other files called .gqac, and polyglots."""
        starts = {"zip": b"PK\x03\x04", "ELF": b"\x7fELF\x02\x01\x01\0", "gguf": b"GGUF\x03\0\0\0",
                  "text": b"hello\n", "safetensors": struct.pack("<Q", 40) + b'{"a":{}}'}
        for label, start in starts.items():
            self.refused(start + bytes(8192), label)
            self.refused(start + self.data, f"{label} before an artefact")
            self.refused(start + self.data[len(start):], f"{label} over an artefact")
            self.refused(self.data + start, f"{label} behind an artefact")
        self.refused(b"", "empty")
        self.refused(model("llama").read_bytes(), "an ONNX file")

    def test_other_verbs(self):
        """run, score, equiv and compile refuse in the same way."""
        path = self.dir / "m.gqac"
        path.write_bytes(flipped(self.data, 70))
        ids = MODELS / "llama" / "ref" / "ids.txt"
        for args in (("run", path), ("score", path, "--ids", ids), ("equiv", path),
                     ("compile", path, "-o", self.dir / "o.gqac")):
            self.check(gqac(*args), 3, "m.gqac")


add_models()

if __name__ == "__main__":
    sys.exit(harness.main())
