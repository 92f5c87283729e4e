#!/usr/bin/env python3
"""Inputs and outputs with other names: those in genai_config.json are used.

    python test/python/test_io_names.py

A test model is written again with other names in the graph and in its config; it must compute the
same bits as before, from its folder, from its model file and from an artefact of it.
"""

import json
import shutil
import sys
import unittest

import harness
from harness import Case, MODELS, gqac

try:
    import onnx
except ImportError as missing:
    onnx = None
    print(missing)

LAYERS = 2
PLAIN = {"input_ids": "tokens", "attention_mask": "mask", "logits": "scores"}
PATTERNS = {"past_key_names": ("past_key_values.%d.key", "cache.k.%d"),
            "past_value_names": ("past_key_values.%d.value", "cache.v.%d"),
            "present_key_names": ("present.%d.key", "cache_out.k.%d"),
            "present_value_names": ("present.%d.value", "cache_out.v.%d")}


def renamed(name, folder, plain=None, patterns=None):
    """Write model `name` with other names: config, graph and weights; returns the map that was
    used."""
    plain = PLAIN if plain is None else plain
    patterns = PATTERNS if patterns is None else patterns
    names = dict(plain)
    for old, new in patterns.values():
        names.update({old % i: new % i for i in range(LAYERS)})
    shutil.copytree(MODELS / name, folder, ignore=shutil.ignore_patterns("ref"))
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    graph = model.graph
    for value in [*graph.input, *graph.output]:
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(n, n) for n in field]
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    config = json.loads((folder / "genai_config.json").read_text())
    for group in ("inputs", "outputs"):
        entries = config["model"]["decoder"][group]
        for key, value in entries.items():
            entries[key] = patterns[key][1] if key in patterns else plain.get(value, value)
    (folder / "genai_config.json").write_text(json.dumps(config))
    return names


@unittest.skipUnless(onnx, "the onnx package is not installed")
class Names(Case):
    """The same bits with any names."""

    def logits(self, model, *flags):
        """The bytes of all logits."""
        out = self.dir / "l.npy"
        self.good("score", model, "--ids", MODELS / "llama" / "ref" / "ids.txt", "--logits", out,
                  *flags)
        return out.read_bytes()

    def test_same_bits(self):
        """Folder, model file, artefact; split and whole."""
        folder = self.dir / "m"
        renamed("llama", folder)
        expected = self.logits(MODELS / "llama")
        self.assertEqual(self.logits(folder), expected)
        self.assertEqual(self.logits(folder, "--splits", "9,15"), expected)
        self.assertEqual(self.logits(folder / "model.onnx"), expected)
        self.good("compile", folder, "-o", self.dir / "m.gqac")
        shutil.rmtree(folder)
        self.assertEqual(self.logits(self.dir / "m.gqac"), expected)
        told = self.good("equiv", self.dir / "m.gqac", "--tokens", 12, "--format", "json").json()
        self.assertEqual(told["differing"], 0)
        self.assertGreater(told["compared"], 0)

    def test_without_config(self):
        """Without the config such names have no meaning: the cache is not recognised, or has no
        input."""
        folder = self.dir / "m"
        renamed("llama", folder)
        (folder / "genai_config.json").unlink()
        result = gqac("score", folder / "model.onnx", "--ids",
                      MODELS / "llama" / "ref" / "ids.txt")
        self.check(result, 3)

    def test_no_logits(self):
        """A model with another output (exclude_lm_head) is refused, with a hint how to name it."""
        folder, ids = self.dir / "m", MODELS / "llama" / "ref" / "ids.txt"
        renamed("llama", folder, {"logits": "hidden_states"}, {})
        path = folder / "genai_config.json"
        config = json.loads(path.read_text())
        named = config["model"]["decoder"]["outputs"].pop("logits")
        path.write_text(json.dumps(config))
        self.check(gqac("score", folder, "--ids", ids), 3, "no output 'logits'",
                   "model.decoder.outputs.logits")
        config["model"]["decoder"]["outputs"]["logits"] = named
        path.write_text(json.dumps(config))
        self.assertEqual(self.logits(folder), self.logits(MODELS / "llama"))

    def test_stateless_keeps_names(self):
        """`run` and `inspect` use the model's own names, also for an artefact."""
        folder = self.dir / "m"
        names = renamed("llama", folder)
        self.good("compile", folder, "-o", self.dir / "m.gqac")
        given, out = self.dir / "in", self.dir / "out"
        given.mkdir()
        stored = MODELS / "llama" / "ref" / "decode"
        for file in (stored / "inputs").iterdir():
            shutil.copy(file, given / (names[file.stem] + ".npy"))
        for source in (folder, self.dir / "m.gqac"):
            shutil.rmtree(out, ignore_errors=True)
            self.good("run", source, "--inputs", given, "-o", out)
            self.assertEqual(sorted(p.stem for p in out.iterdir()),
                             sorted(names[p.stem] for p in (stored / "expect").iterdir()))
            told = self.good("inspect", source, "--format", "json").json()
            self.assertIn("tokens", json.dumps(told["inputs"]))
            self.assertEqual(told["kv_pairs"][0]["past"], "cache.k.0")

    def test_without_cache(self):
        """A model without a cache, which computes all ids in every call; also its artefact."""
        source, folder = harness.ROOT / "test" / "traced" / "opt-no-cache", self.dir / "m"
        renamed("llama", folder)
        model = onnx.load(source / "model.onnx")
        for value in [*model.graph.input, *model.graph.output]:
            value.name = PLAIN[value.name]
        for node in model.graph.node:
            for field in (node.input, node.output):
                field[:] = [PLAIN.get(n, n) for n in field]
        onnx.save(model, folder / "model.onnx")
        expected = self.logits(source / "model.onnx", "--kv", "off")
        self.assertEqual(self.logits(folder, "--kv", "off"), expected)
        self.good("compile", folder, "--stateless", "-o", self.dir / "m.gqac")
        self.assertEqual(self.logits(self.dir / "m.gqac", "--kv", "off"), expected)
        told = self.good("inspect", self.dir / "m.gqac", "--format", "json").json()
        self.assertEqual({i["name"] for i in told["inputs"]}, {"tokens", "mask"})

    def test_sole_unknown_input(self):
        """Without a cache and a config, the only input without a known name is the ids."""
        source, path = harness.ROOT / "test" / "traced" / "llama-no-cache" / "model.onnx", self.dir / "m.onnx"
        for names, good in (({"input_ids": "tokens"}, True),
                            ({"input_ids": "tokens", "attention_mask": "mask"}, False),
                            ({"attention_mask": "mask"}, False)):
            model = onnx.load(source)
            for value in model.graph.input:
                value.name = names.get(value.name, value.name)
            for node in model.graph.node:
                node.input[:] = [names.get(n, n) for n in node.input]
            onnx.save(model, path)
            if good:
                self.assertEqual(self.logits(path, "--kv", "off"),
                                 self.logits(source, "--kv", "off"))
            else:
                self.check(gqac("score", path, "--kv", "off", "--ids",
                                MODELS / "llama" / "ref" / "ids.txt"), 3, "is not known",
                           "ids may have another name")

    def test_swapped(self):
        """Two names that are exchanged."""
        folder = self.dir / "m"
        renamed("llama", folder, {"input_ids": "attention_mask", "attention_mask": "input_ids"},
                {"past_key_names": ("past_key_values.%d.key", "past_key_values.%d.value"),
                 "past_value_names": ("past_key_values.%d.value", "past_key_values.%d.key")})
        self.assertEqual(self.logits(folder), self.logits(MODELS / "llama"))

    def test_taken_inside(self):
        """A value inside the graph with the same name is renamed."""
        folder = self.dir / "m"
        renamed("llama", folder)
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        inner = model.graph.node[0].output[0]
        for node in model.graph.node:
            for field in (node.input, node.output):
                field[:] = ["input_ids" if n == inner else n for n in field]
        for value in model.graph.value_info:
            value.name = "input_ids" if value.name == inner else value.name
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        self.assertEqual(self.logits(folder), self.logits(MODELS / "llama"))

    def test_collisions(self):
        """Two inputs with one name, one input with two names."""
        ids = MODELS / "llama" / "ref" / "ids.txt"
        for key, value, word in (("attention_mask", "tokens", "tokens"),
                                 ("past_key_names", "cache.v.%d", "cache.v.0"),
                                 ("position_ids", "cache.k.1", "cache.k.1")):
            folder = self.dir / key
            renamed("llama", folder)
            config = json.loads((folder / "genai_config.json").read_text())
            config["model"]["decoder"]["inputs"][key] = value
            (folder / "genai_config.json").write_text(json.dumps(config))
            self.check(gqac("score", folder, "--ids", ids), 3, word)
        folder = self.dir / "taken"  # 'tokens' would get the name of another input
        renamed("llama", folder, {"input_ids": "tokens", "logits": "scores"})
        config = json.loads((folder / "genai_config.json").read_text())
        config["model"]["decoder"]["inputs"] = {"position_ids": "attention_mask"}
        (folder / "genai_config.json").write_text(json.dumps(config))
        self.check(gqac("score", folder, "--ids", ids), 3)


if __name__ == "__main__":
    sys.exit(harness.main())
