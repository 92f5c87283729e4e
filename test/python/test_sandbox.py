#!/usr/bin/env python3
"""--sandbox: the same results, and nothing read or written elsewhere.

    python test/python/test_sandbox.py

test/cli/test_sandbox.c tests what a confined process cannot do.
"""

import os
import shutil
import sys
import unittest

import harness
from harness import Case, MODELS, gqac
from serving import Server, absent

# LeakSanitizer starts a process that traces this one.
ENV = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def can_confine():
    """None, or why this machine has no sandbox."""
    result = gqac("inspect", MODELS / "llama" / "model.onnx", "--sandbox", env=ENV)
    return result.err if "--sandbox is not possible here" in result.err else None


WHY_NOT = can_confine()


@unittest.skipIf(WHY_NOT, str(WHY_NOT))
class Sandbox(Case):
    """Verbs in the sandbox, on a copy of a model."""

    def setUp(self):
        super().setUp()
        self.model = self.dir / "model"
        shutil.copytree(MODELS / "llama", self.model, ignore=shutil.ignore_patterns("ref"))
        self.out = self.dir / "out"
        self.out.mkdir()
        self.far = self.dir / "far"
        self.far.mkdir()

    def confined(self, *args):
        """Runs gqac with --sandbox."""
        return gqac(*args, "--sandbox", env=ENV)

    def test_same_bytes(self):
        """Artefacts and reports do not depend on the sandbox."""
        text = self.far / "system.txt"
        text.write_text("Be brief.")
        bake = ("--bake", text, "--bake-as", "prompt")
        self.good("compile", self.model, "-o", self.far / "a.gqac", *bake)
        self.check(self.confined("compile", self.model, "-o", self.out / "a.gqac", *bake), 0)
        self.assertEqual((self.far / "a.gqac").read_bytes(), (self.out / "a.gqac").read_bytes())
        for words in ((self.model, "--plan", "--memory", 9, "--format", "json"),
                      (self.out / "a.gqac", "--verify")):
            self.assertEqual(self.check(self.confined("inspect", *words), 0).out,
                             self.good("inspect", *words).out)

    def test_files_elsewhere(self):
        """Files of a Hugging Face cache are links to files outside the folder, which a flag must
        permit."""
        cache = self.dir / "cache"
        named = cache / "snapshots" / "1"
        (cache / "blobs").mkdir(parents=True)
        named.mkdir(parents=True)
        for i, file in enumerate(sorted(self.model.iterdir())):
            file.rename(cache / "blobs" / str(i))
            (named / file.name).symlink_to(f"../../blobs/{i}")
        self.good("inspect", named)
        self.check(self.confined("inspect", named), 5, "Permission denied", "--model-root DIR")
        self.check(self.confined("inspect", named, "--model-root", cache), 0)

    def test_gpu(self):
        """The drivers of a device would not work."""
        self.check(self.confined("inspect", self.model, "--target", "gpu"), 2,
                   "--sandbox is not possible with --target gpu")

    @unittest.skipIf(absent(), "there is no server")
    def test_serve(self):
        """The server answers in the same way, and stores prefixes in its folder."""
        answers = []
        for flags in ((), ("--sandbox",)):
            store = self.dir / f"store{len(flags)}"
            with Server("--prefix-store", store, *flags, model=self.model, env=ENV) as server:
                asked = {"prompt": "Once " * 80, "max_tokens": 4, "seed": 1}
                answers.append(server.good("/v1/completions", asked)["choices"])
                self.assertEqual(server.stop(), 0)
            self.assertTrue(any(store.iterdir()), flags)
        self.assertEqual(*answers)


if __name__ == "__main__":
    sys.exit(harness.main())
