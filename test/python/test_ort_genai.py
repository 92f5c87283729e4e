#!/usr/bin/env python3
"""onnxruntime-genai on the provider: its ids are those of `gqac generate`, in a Generator that is
extended, rewound and extended again, and in an Engine whose requests share a batch or have several
turns."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import unittest

import harness
from harness import Case, FULL, MODELS, ROOT
from ort_sessions import LIBRARY, OLDEST, RUNTIME

PROMPT, MORE, COUNT = [50, 72, 69, 256, 65, 100], [33, 7, 90], 24
FOLDERS = sorted(path.parent for root in (MODELS, ROOT / "models")
                 for path in root.glob("*/genai_config.json")
                 if RUNTIME >= OLDEST.get(path.parent.name, (1, 23)))
SHORT = ["tiny-gqa", "llama-int4-acc4", "lfm2", "qwen3.5"]
# genai refuses to rewind these states with any provider, and to run them in an Engine.
STATES = {"lfm2": "RewindTo is currently not supported",
          "qwen3.5": "not supported without a snapshot"}

HEAD = """
import json, sys
import numpy as np
import onnxruntime_genai as og
library, folder, prompt, more, count = json.loads(sys.argv[1])
og.register_execution_provider_library("gqac", library)
model, found = og.Model(folder), {}
"""
GENERATOR = """
params = og.GeneratorParams(model)
params.set_search_options(max_length=4 * count, do_sample=False)
generator = og.Generator(model, params)
def finish():
    for _ in range(count):
        if generator.is_done():
            break
        generator.generate_next_token()
    return list(map(int, generator.get_sequence(0)))
def rewind(length, ids):
    generator.rewind_to(length)
    generator.append_tokens(ids)
    return finish()
generator.append_tokens(prompt)
whole = found["whole"] = finish()
try:
    whole = found["whole"] = rewind(len(prompt) + 3, whole[len(prompt) + 3:len(prompt) + 5])
    found["continued"] = rewind(len(whole) - 2, whole[-2:] + more)
    generator.append_tokens(more)
except Exception as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""
ENGINE = """
engine = og.Engine(model)
buffer = engine.create_event_buffer(64)
def turn(request, ids):
    options = og.TurnOptions(request)
    options.set_max_generated_tokens(count)
    options.set_do_sample(False)
    return request.begin_turn(np.array(ids, np.int32), options)
def finish(requests):
    replies = [[] for _ in requests]
    while engine.has_pending_requests():
        engine.run(buffer)
        for i in range(len(buffer)):
            if int(buffer[i].flags) & int(og.EngineEventFlags.TOKEN.value):
                replies[requests.index(buffer[i].request)].append(int(buffer[i].token))
    return replies
one = engine.create_request()
turn(one, prompt)
found["first"], = finish([one])
at = turn(one, more)
found["second"], = finish([one])
one.rewind_to_start_of_turn(at)
turn(one, more)
found["again"], = finish([one])
one.close()
crowd = [engine.create_request() for _ in range(3)]
for i, request in enumerate(crowd):
    turn(request, prompt[i:])
found["crowd"] = finish(crowd)
print(json.dumps(found))
"""


# Reason of the skip: genai is the host under test; ./dev deps installs it, other machines may lack
# it.
@unittest.skipUnless(importlib.util.find_spec("onnxruntime_genai"),
                     "onnxruntime_genai is not installed")
class Genai(Case):
    """Each folder of a test model with a genai_config.json."""

    def provider_options(self):
        """The entry of genai_config.json that docs/onnxruntime.md shows."""
        page = (ROOT / "docs" / "onnxruntime.md").read_text()
        line, = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        return json.loads("{" + line + "}")

    def copy(self, folder, shared):
        """A copy of the folder with the provider in its settings; no node may run on another
        one."""
        made = self.dir / f"{folder.name}-{shared}"
        shutil.copytree(folder, made, ignore=shutil.ignore_patterns("ref"))
        path = made / "genai_config.json"
        config = json.loads(path.read_text())
        options = config["model"]["decoder"].setdefault("session_options", {})
        options |= self.provider_options() | {"session.disable_cpu_ep_fallback": "1"}
        config["search"]["past_present_share_buffer"] = shared
        path.write_text(json.dumps(config))
        return made

    def genai(self, text, folder):
        """The results of a process that uses genai."""
        words = json.dumps([str(LIBRARY), str(folder), PROMPT, MORE, COUNT])
        done = subprocess.run([sys.executable, "-c", HEAD + text, words], capture_output=True,
                              text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def same(self, folder, prompt, reply):
        """The reply equals that of `gqac generate`, which also ends at ids that genai does not
        know."""
        ids = harness.write_ids(self.dir / "ids", prompt)
        wanted = self.good("generate", folder, "--ids", ids, "-n", len(reply), "--temperature", 0,
                           "--format", "json").json()["ids"]
        self.assertGreater(len(wanted), 3)
        self.assertEqual(reply[:len(wanted)], wanted, f"{folder}: {prompt}")

    def test_generator(self):
        """A reply, its end again after rewinding, and a reply to more ids; with and without a
        shared buffer. genai 0.18 does not compute the last id of a reply when ids are appended, so
        the last two are rewound and appended again. Otherwise a row is missing in the call, which
        all providers refuse unless a shared buffer hides it."""
        for folder in (each for each in FOLDERS if FULL or each.name in SHORT):
            for shared in (False, True):
                found = self.genai(GENERATOR, self.copy(folder, shared))
                whole = found["whole"]
                self.assertEqual(whole[:len(PROMPT)], PROMPT)
                self.same(folder, PROMPT, whole[len(PROMPT):])
                if folder.name in STATES:
                    self.assertIn(STATES[folder.name], found["refused"])
                    continue
                asked, continued = whole + MORE, found["continued"]
                self.assertEqual(continued[:len(asked)], asked)
                self.same(folder, asked, continued[len(asked):])
                if len(continued) == len(asked) + COUNT:  # it has not ended
                    said = found.get("refused", "")
                    self.assertEqual("3 new tokens: it must equal their sum" in said, not shared)

    def test_engine(self):
        """Continuous decoding: turns of one request, and several requests in one batch."""
        import onnxruntime_genai
        # Reason of the skip: only newer versions of genai can continue a request; ./dev deps has one.
        if not hasattr(onnxruntime_genai, "TurnOptions"):
            self.skipTest("this onnxruntime_genai has no turns")
        for folder in (each for each in FOLDERS if FULL or each.name in SHORT):
            if folder.name in STATES:
                continue
            for shared in (False, True):
                found = self.genai(ENGINE, self.copy(folder, shared))
                self.same(folder, PROMPT, found["first"])
                self.same(folder, PROMPT + found["first"] + MORE, found["second"])
                self.assertEqual(found["again"], found["second"])
                for i, reply in enumerate(found["crowd"]):
                    self.same(folder, PROMPT[i:], reply)


if __name__ == "__main__":
    sys.exit(harness.main(loads_library=True))
