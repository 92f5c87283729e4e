#!/usr/bin/env python3
"""Seeds and dictionaries for the fuzz targets, from files of the tree.

    python test/fuzz/make_seeds.py BUILD        writes BUILD/seeds/<target>/ and BUILD/seeds/<target>.dict

BUILD is build/fuzz, where gqac and make_files were built. Seeds are the exports of test/models,
the corpus of bad files and its valid twins, golden texts, ONNX's own node tests, tokenizers and
templates of the tests, invalid requests of the server's tests, artefacts and snapshots that are
made here, and the files of test/fuzz/inputs. A dictionary contains words that several seeds of a
target have in common.
"""

import hashlib
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 48 << 10  # maximum bytes of a seed
WORDS = 600  # maximum words in a dictionary


class Seeds:
    """The seeds of all targets; equal contents are stored once."""

    def __init__(self, out):
        self.out = out
        self.words = {}

    def add(self, target, data):
        """Adds one seed, unless it is too large."""
        if len(data) > LARGEST:
            return
        folder = self.out / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(data).hexdigest()[:16]).write_bytes(data)
        self.words.setdefault(target, Counter()).update(
            set(re.findall(rb"[A-Za-z_][A-Za-z0-9_.|-]{1,30}", data)))

    def files(self, target, paths):
        """Adds the contents of files."""
        for path in paths:
            if path.is_file():
                self.add(target, path.read_bytes())

    def dictionaries(self):
        """The most common words of each target."""
        for target, words in self.words.items():
            common = [w for w, n in words.most_common(WORDS) if n > 1]
            text = "".join(f'"{w.decode()}"\n' for w in sorted(common))
            (self.out / f"{target}.dict").write_text(text)


def onnx_files(scratch):
    """Models: exports, the corpus, ONNX's node tests."""
    yield from ROOT.glob("test/models/*/model.onnx")
    yield from ROOT.glob("models/*/model.onnx")
    yield from ROOT.glob("test/traced/**/*.onnx")
    try:
        import onnx
    except ImportError:
        return
    subprocess.run([sys.executable, ROOT / "test/corpus/make_bad.py", scratch], check=True,
                   stdout=subprocess.DEVNULL)
    yield from scratch.glob("*/*/*/model.onnx")
    yield from Path(onnx.__file__).parent.glob("backend/test/data/node/*/model.onnx")


def cache_files(scratch):
    """Small models whose caches have other forms (test/python/caches.py)."""
    sys.path.insert(0, str(ROOT / "test/python"))
    try:
        import caches
        import onnx
    except ImportError:
        return
    caches.WIDTH, caches.VOCABULARY, caches.LAYERS = 12, 11, 1
    scratch.mkdir()
    for kind in caches.KINDS:
        path = scratch / f"{kind}.onnx"
        onnx.save(caches.Caches(kind).model(), path)
        yield path


def various(paths):
    """Models with an op that has more inputs or other attributes than in all models before."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        return
    seen = set()
    for path in paths:
        if not path.is_file() or path.stat().st_size > LARGEST:  # one of the bad files is a pipe
            continue
        try:
            nodes = onnx.load(path, load_external_data=False).graph.node
        except DecodeError:
            continue
        kinds = {(n.op_type, len(n.input), *sorted(a.name for a in n.attribute)) for n in nodes}
        if not kinds <= seen:
            seen |= kinds
            yield path


def sessions(seeds, models):
    """Models in sessions of ONNX Runtime (fuzz_ep.c): from bytes, from a file, writing a context
    model, and with a node that gqac does not have; context models."""
    sizes = (0x5555, 0x0150)
    for path in models:
        data = path.read_bytes()
        for i, kind in enumerate((0x30, 0x31, 0x34, 0x38, 0x04)):
            seeds.add("ep", struct.pack("<BHB", kind, sizes[i % 2], 0) + data)
    try:
        import onnx
        from onnx import helper
    except ImportError:
        return
    for path in models:
        model = onnx.load(path, load_external_data=False)
        graph, name = model.graph, f"{path.stem if path.stem.isdigit() else 0}.gqac"
        if not graph.node or not graph.output:
            continue
        context = helper.make_node(
            "EPContext", [i.name for i in graph.input], [o.name for o in graph.output], "context",
            domain="com.microsoft", source="GqacExecutionProvider", ep_cache_context=name,
            embed_mode=0, notes="=", main_context=1)
        whole = helper.make_model(helper.make_graph([context], "g", graph.input, graph.output),
                                  opset_imports=model.opset_import)
        seeds.add("ep", struct.pack("<BHB", 0x30, sizes[1], 0) + whole.SerializeToString())
        graph.node.append(helper.make_node("Unknown", [graph.output[0].name], ["unknown"],
                                           domain="other"))
        graph.output.append(helper.make_tensor_value_info("unknown", 1, ["N"]))
        for kind in (0x30, 0x14):
            seeds.add("ep", struct.pack("<BHB", kind, sizes[1], 0) + model.SerializeToString())


def tensor_files():
    """Tensors: stored results, and inputs of ONNX's node tests."""
    yield from list(ROOT.glob("test/models/*/ref/**/*.npy"))[:60]
    try:
        import onnx
        import numpy
    except ImportError:
        return
    yield from list(Path(onnx.__file__).parent.glob(
        "backend/test/data/node/*/test_data_set_0/*.pb"))[:300]
    with tempfile.TemporaryDirectory() as name:
        for i, kind in enumerate("? b B h H i q Q e f d V2 U3 O <f4 >i2".split()):
            for version in ((1, 0), (2, 0), (3, 0)):
                path = Path(name) / f"{i}-{version[0]}.npy"
                array = numpy.asfortranarray(numpy.zeros((2, 3), dtype=kind)) if i % 2 \
                    else numpy.zeros((2, 1, 2), dtype=kind)
                with open(path, "wb") as f:
                    numpy.lib.format.write_array(f, array, version)
                yield path


def texts(seeds):
    """Inputs of the text libraries."""
    seeds.files("tokenizer", ROOT.glob("test/tokenizers/*/tokenizer.json"))
    seeds.files("tokenizer", ROOT.glob("*models/*/tokenizer.json"))
    seeds.files("tokenizer", ROOT.glob("test/models/*/tokenizer.json"))
    for name in ("genai_config.json", "generation_config.json"):
        seeds.files("config", ROOT.glob(f"**/{name}"))
    for path in ROOT.glob("test/templates/**/*"):
        if path.is_file() and path.suffix != ".json":
            seeds.add("template", path.read_bytes())
    snippets = json.loads((ROOT / "test/templates/snippets.json").read_text())
    variables = json.dumps(snippets["variables"]).encode()
    for row in snippets["rows"]:
        seeds.add("template", row["template"].encode() + b"\0" + variables)
    for path in [*ROOT.glob("test/tokenizers/*/tokenizer.json"),
                 *ROOT.glob("test/python/test_pattern*.py")]:
        for text in re.findall(r'"Regex": *("(?:[^"\\]|\\.)*")', path.read_text()):
            seeds.add("expression", json.loads(text).encode() + b"\0It's 12  a\n")
        for text in re.findall(r'\br"([^"\n]{2,120})"', path.read_text()):
            seeds.add("expression", text.encode())


def request_rows(seeds):
    """Schemas, grammars, tools and HTTP headers: as requests, and the first three also
    separately."""
    from bad_requests import ROWS
    chat, text = {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 1}, \
        {"prompt": "x", "max_tokens": 1}
    for row in ROWS:
        if row.kind == "head":
            seeds.add("http", row.sent)
            continue
        sent = row.sent if row.kind == "grammar" else json.dumps(
            row.sent.get("tools") if row.kind == "tools" else row.sent)
        seeds.add("constraint", str(sent).encode() + b"\0")
        body = {**chat, **row.sent} if row.kind == "tools" else \
            {**text, "json_schema" if row.kind == "schema" else row.kind: row.sent}
        path = "/v1/chat/completions" if row.kind == "tools" else "/v1/completions"
        seeds.add("http", path.encode() + b"\0" + json.dumps(body).encode())


def requests(seeds):
    """Invalid requests, as in test_serve_bad.py and test_bad_requests.py."""
    sys.path[:0] = [str(ROOT / "test/python"), str(ROOT / "test/corpus")]
    import test_serve_bad as bad
    request_rows(seeds)
    bodies = {bad.TEXT: [{"prompt": "x", "max_tokens": 2, name: value}
                         for name, values in bad.FIELDS.items() for value in values] + bad.OF_TEXT,
              bad.CHAT: bad.OF_CHAT, "/v1/responses": bad.OF_RESPONSE}
    for path, values in bodies.items():
        for value in values:
            seeds.add("http", path.encode() + b"\0" + json.dumps(value).encode())
    for body in bad.BODIES:
        seeds.add("http", bad.TEXT.encode() + b"\0" + body)
    for text, _ in bad.RAW:
        seeds.add("http", text)


def main():
    """Write everything."""
    build = Path(sys.argv[1])
    seeds = Seeds(build / "seeds")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        models = [*cache_files(scratch / "caches"), *onnx_files(scratch / "bad")]
        for target in ("scan", "onnx", "model"):
            seeds.files(target, models)
        seeds.files("text", ROOT.glob("test/golden/*.gq"))
        seeds.files("npy", tensor_files())
        texts(seeds)
        requests(seeds)
        made = scratch / "made"
        made.mkdir()
        subprocess.run([build / "test/fuzz/bin/make_files", made, *various(models)], check=True)
        for target, ending in (("scan", "onnx"), ("onnx", "onnx"), ("model", "onnx"), ("text", "gq"),
                               ("artefact", "gqac"), ("snapshot", "gqs"), ("store", "gqs"),
                               ("npy", "npy")):
            seeds.files(target, made.glob(f"*.{ending}"))
        sessions(seeds, [*made.glob("*.onnx"), *various(models)])
        chance = random.Random(1)
        for _ in range(64):
            seeds.add("api", bytes(chance.randrange(256) for _ in range(240)))
        for folder in (ROOT / "test/fuzz/inputs").glob("*"):
            seeds.files(folder.name, folder.glob("*"))
    seeds.dictionaries()
    for folder in sorted(seeds.out.iterdir()):
        if folder.is_dir():
            print(f"{folder.name}: {len(list(folder.iterdir()))} seeds")


if __name__ == "__main__":
    main()
