#!/usr/bin/env python3
"""gqac equiv --certificate: written once, then checked; and --against another target.

    python test/python/test_certificate.py        GQAC names the binary
"""

import hashlib
import json
import os
import sys

import numpy as np

import harness
from harness import Case, MODELS, gqac, model, write_ids

LLAMA = model("llama")
PROOF = ("equiv", LLAMA, "--target", "ref", "--tokens", 12, "--splits", "5")


def proof(**other):
    """The proof with other values of its flags; None removes one."""
    flags = {"target": "ref", "tokens": 12, "splits": "5", **other}
    return ("equiv", LLAMA, *(word for name, value in flags.items() if value is not None
                              for word in (f"--{name}", value)))
CONTROL = harness.CONTROLS / "KERNEL_BY_ROWS"


class Certificate(Case):
    """Its contents, and when it is refused."""

    def setUp(self):
        super().setUp()
        self.path = self.dir / "c.json"

    def test_content(self):
        """Digests of model, tokens and logits are correct."""
        ids = write_ids(self.dir / "ids", range(20))
        found = self.good("equiv", LLAMA, "--target", "ref", "--ids", ids, "--splits", "5",
                          "--threads", "1,2", "--certificate", self.path, "--format", "json").json()
        self.assertEqual(found["certificate"], {"file": str(self.path), "written": True})
        made = json.loads(self.path.read_text())
        self.assertEqual(made["tokens"], {"n": 20, "digest": hashlib.sha256(
            np.arange(20, dtype="<i8").tobytes()).hexdigest()})
        self.assertEqual(made["proof"]["threads"], [1, 2])
        self.assertEqual((made["proof"]["plans"], made["proof"]["planned"]), (2, 2))
        self.assertEqual(made["profile"], found["profile"])
        self.good("score", LLAMA, "--target", "ref", "--ids", ids, "--logits", self.dir / "l.npy")
        logits = np.load(self.dir / "l.npy")
        self.assertEqual(made["logits"]["digest"], hashlib.sha256(logits.tobytes()).hexdigest())
        self.assertEqual(made["logits"]["positions"],
                         [hashlib.sha256(row.tobytes()).hexdigest() for row in logits])
        packed = self.dir / "m.gqac"
        self.good("compile", LLAMA, "--target", "ref", "-o", packed)
        digest = self.good("inspect", packed, "--format", "json").json()["artefact"]
        self.assertEqual(made["model"]["digest"], digest["source_digest"])
        self.good("equiv", packed, "--target", "ref", "--ids", ids, "--certificate", self.path)

    def test_checked(self):
        """The same run, with other plans, threads and paths, passes; the file is unchanged."""
        self.good(*PROOF, "--certificate", self.path)
        before = self.path.read_bytes()
        for flags in ({}, {"splits": "random:3"}, {"threads": 2}, {"via": "decode"}, {"batch": 3}):
            out = self.good(*proof(**flags), "--certificate", self.path).out
            self.assertIn("the logits of every position are those of", out)
        self.assertEqual(self.path.read_bytes(), before)

    def test_via(self):
        """The path to the cached rows is named as on the command line."""
        for via in ("split", "decode", "import", "prefix", "snapshot"):
            with self.subTest(via=via):
                path = self.dir / via
                self.good(*proof(via=via), "--certificate", path)
                self.assertEqual(json.loads(path.read_text())["proof"]["via"], via)

    def test_levels(self):
        """A certificate written at one level is valid at another one."""
        proof = ("equiv", MODELS / "llama-int4-acc4", "--target", "cpu", "--tokens", 70,
                 "--splits", "9,40", "--certificate", self.path)
        self.good(*proof, env={"GQAC_CPU": "scalar"})
        self.assertEqual(json.loads(self.path.read_text())["level"], "scalar")
        for level in ("avx2", "avx512", "avx512vnni", "avx512bf16"):
            result = gqac(*proof, env={"GQAC_CPU": level})
            if result.code != 77:
                self.check(result, 0, "level scalar")

    def test_other_position(self):
        """Exit 1 with the first position that differs."""
        self.good(*PROOF, "--certificate", self.path)
        made = json.loads(self.path.read_text())
        for position in (9, 4):
            digest = made["logits"]["positions"][position]
            made["logits"]["positions"][position] = digest[::-1]
            self.path.write_text(json.dumps(made))
            found = self.check(gqac(*PROOF, "--certificate", self.path, "--format", "json"),
                               1).json()
            self.assertEqual(found["certificate"], {"file": str(self.path), "equal": False,
                                                    "position": position})
            self.check(gqac(*PROOF, "--certificate", self.path), 1, f"position {position} are not")

    def test_contradiction(self):
        """The digest of all logits is compared, too."""
        self.good(*PROOF, "--certificate", self.path)
        made = json.loads(self.path.read_text())
        made["logits"]["digest"] = made["logits"]["digest"][::-1]
        self.path.write_text(json.dumps(made))
        self.check(gqac(*PROOF, "--certificate", self.path), 3, "contradicts itself")

    def test_other_subject(self):
        """Another model, token list or profile is exit 1 with a message."""
        self.good(*PROOF, "--certificate", self.path)
        certificate = ("--certificate", self.path)
        self.check(gqac(*proof(tokens=13), *certificate), 1, "another token list")
        self.check(gqac("equiv", model("qwen2"), *PROOF[2:], *certificate), 1, "another model")
        self.check(gqac(*proof(target="cpu"), *certificate), 1, "another numerics profile")
        ids = write_ids(self.dir / "others", range(1, 13))
        for args in (proof(tokens=13), proof(tokens=None, ids=ids), proof(target="cpu")):  # before
                                                                                           # the
                                                                                           # model
                                                                                           # is
                                                                                           # loaded
            done = self.check(gqac(*args, *certificate, "-v"), 1, "another")
            self.assertNotIn("pass ", done.err)
        self.check(gqac(*PROOF, "--against", "cpu", *certificate), 2, "cannot be combined")

    def test_other_file(self):
        """A file that is not a certificate is exit 3 and is not changed."""
        self.good(*PROOF, "--certificate", self.path)
        made = json.loads(self.path.read_text())
        bad = [b"", b"{}", b"[1]", b"my notes", b"\xff\xfe", json.dumps(made).encode()[:-1]]
        for key in ("certificate", "version", "model", "tokens", "profile", "logits"):
            bad.append(json.dumps({k: v for k, v in made.items() if k != key}).encode())
        short = json.loads(json.dumps(made))
        short["logits"]["positions"].pop()
        wrong = json.loads(json.dumps(made))
        wrong["logits"]["positions"][3] = "no digest"
        for data in (*bad, json.dumps(short).encode(), json.dumps(wrong).encode()):
            self.path.write_bytes(data)
            self.check(gqac(*PROOF, "--certificate", self.path), 3, "not a certificate")
            self.assertEqual(self.path.read_bytes(), data)

    def test_not_written(self):
        """The file cannot be created; nothing remains."""
        self.check(gqac(*PROOF, "--certificate", self.dir / "none" / "c.json"), 5, "cannot write")
        self.check(gqac(*PROOF, "--certificate", self.dir), 5)
        self.assertEqual(list(self.dir.iterdir()), [])

    # Reason of the skip: builds with a shared library make no controls (test/CMakeLists.txt).
    def test_control(self):
        """Other arithmetic gets no certificate, and does not match that of the correct one."""
        words = " ".join(map(str, (*PROOF, "--certificate", self.path)))
        self.assertEqual(os.waitstatus_to_exitcode(os.system(f"{CONTROL} {words} >/dev/null")), 1)
        self.assertFalse(self.path.exists())
        self.good(*PROOF, "--certificate", self.path)
        self.assertEqual(os.waitstatus_to_exitcode(os.system(
            f"{CONTROL} {words} | grep -q 'position 0 are not those'")), 0)


class Against(Case):
    """--against TARGET compares bits, and reports the distance."""

    def test_against(self):
        """Exit 0 only for equal bits; the JSON names both profiles and the distance."""
        result = gqac("equiv", LLAMA, "--target", "cpu", "--against", "ref", "--tokens", 20,
                      "--splits", "9", "--format", "json")
        found = self.check(result, (0, 1)).json()
        self.assertEqual(result.code, int(found["differing"] != 0))
        self.assertIn("/cpu/", found["profile"])
        self.assertIn("/ref/", found["against"])
        self.assertEqual(found["relative"] > 0, found["differing"] != 0)
        self.assertLess(found["relative"], 1e-4)


if __name__ == "__main__":
    sys.exit(harness.main())
