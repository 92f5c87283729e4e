"""Sessions of the stock onnxruntime with libgqac_ort.so, for the tests of the provider.

Sessions are created with session.disable_cpu_ep_fallback: the session fails if any node is left to
the CPU provider, so gqac runs all nodes.
"""

import contextlib
import importlib.metadata
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import harness
from harness import Case, MODELS, ROOT, model

sys.path.append(str(ROOT / "tools"))

import compare_sessions  # noqa: E402

LIBRARY = Path(os.environ.get("GQAC_ORT", harness.GQAC.parent / "libgqac_ort.so"))
NAME = "GqacExecutionProvider"
SEVERITY = [4]  # log severity of new sessions, the last entry; 4: nothing, 2: warnings

RUNTIME = (1, 99)  # the version of the installed onnxruntime; the tests fail if there is none
with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    RUNTIME = tuple(map(int, re.findall(r"\d+", importlib.metadata.version("onnxruntime"))[:2]))
# The oldest runtimes that have the ops of a model with these inputs and attributes: QMoE,
# CausalConvWithState, LinearAttentionGate.
OLDEST = {"gpt-oss": (1, 24), "lfm2": (1, 29), "qwen3.5": (1, 30)}
ALL, SHORT = ([name for name in names if RUNTIME >= OLDEST.get(name, (1, 23))] for names in (
    sorted(path.parent.name for path in MODELS.glob("*/model.onnx")),
    ["llama", "llama-int4-acc4", "lfm2"]))


def since(minor, why):
    """Skips a test with runtimes before version 1.`minor`, with the reason."""
    # Reason of the skip: no provider can add what the runtime itself lacks; newer ones run the
    # test.
    return unittest.skipIf(RUNTIME < (1, minor), f"ONNX Runtime before 1.{minor} {why}")


def start():
    """onnxruntime with the provider registered; only once in a process."""
    import onnxruntime
    if not any(device.ep_name == NAME for device in onnxruntime.get_ep_devices()):
        onnxruntime.set_default_logger_severity(3)
        onnxruntime.register_execution_provider_library("gqac", str(LIBRARY))
    return onnxruntime


def choose(settings, **options):
    """The providers of a session, and their options, for onnxruntime; old versions select plugins
    only by their devices, which become part of the settings."""
    ort = start()
    if NAME in ort.get_available_providers():
        return [NAME], [options]
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    settings.add_provider_for_devices(devices, options)
    return [], []


@contextlib.contextmanager
def warnings():
    """A list that receives, as one text, the warnings that are logged in the meantime."""
    ort, said, kept = start(), [], os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        ort.set_default_logger_severity(2)
        SEVERITY.append(2)
        try:
            yield said
        finally:
            SEVERITY.pop()
            ort.set_default_logger_severity(3)
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said.append(file.read().decode())


def session(source, optimise=True, alone=True, settings=None, intra=0, profile=None, **options):
    """A session on the provider, with entries `settings` of its configuration and `intra` threads
    of the runtime (0: its default); `alone` forbids the CPU provider to run any node. The name of
    the profile file begins with `profile`."""
    ort = start()
    entries = settings or {}
    settings = ort.SessionOptions()
    settings.log_severity_level = SEVERITY[-1]
    settings.intra_op_num_threads = intra
    if profile:
        settings.enable_profiling, settings.profile_file_prefix = True, str(profile)
    if not optimise:
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if alone:
        entries = {"session.disable_cpu_ep_fallback": "1"} | entries
    for name, value in entries.items():
        settings.add_session_config_entry(name, value)
    options = {key: str(value) for key, value in ({"threads": 1} | options).items()}
    providers, options = choose(settings, **options)
    return ort.InferenceSession(source, settings, providers, options, enable_fallback=0)


def others(opened, feeds, expected):
    """The outputs of a run that have another shape, type or bits than expected, by name."""
    names = [output.name for output in opened.get_outputs()]
    found, wanted = ({name: (v.shape, v.dtype, v.tobytes()) for name, v in values}
                     for values in (zip(names, opened.run(None, feeds), strict=True),
                                    expected.items()))
    return sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))


def differences(path, runs, folder):
    """Two sessions of a model, with and without optimisation of the graph, make these runs of
    (inputs, expected outputs): a list of the outputs that differ, and of the shares of gqac that
    are not 100 %. The profiles are written into the folder."""
    wrong = []
    for optimise in (False, True):
        opened = session(str(path), optimise, profile=folder / "profile")
        for i, (feeds, expected) in enumerate(runs):
            wrong += [f"call {i}, optimised: {optimise}: {name} differs"
                      for name in others(opened, feeds, expected)]
        share = compare_sessions.share(Path(opened.end_profiling()))
        if share != 100:
            wrong.append(f"optimised: {optimise}: gqac has {share:.2f} % of the time")
    return wrong


def calls(name):
    """The stored calls of a model that have all inputs."""
    return sorted(path.parent for path in (MODELS / name / "ref").glob("*/inputs"))


def read(folder):
    """{name: array} of a folder of .npy files."""
    return {path.stem: np.load(path) for path in sorted(folder.glob("*.npy"))}


def mixing():
    """The model llama with a node that makes results depend on the split into calls."""
    changed = onnx.load(model("llama"))
    first = next(n for n in changed.graph.node if n.op_type == "SimplifiedLayerNormalization")
    at = list(changed.graph.node).index(first)
    changed.graph.node.insert(at, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]))
    changed.graph.node.insert(at, helper.make_node("DynamicQuantizeLinear", [first.input[0]],
                                                   ["q", "s", "z"], name="/quantise"))
    first.input[0] = "d"
    return changed


class Sessions(Case):
    """Compares sessions with `gqac run`."""

    def run_alone(self, path, inputs):
        """The outputs of `gqac run` for a folder of inputs."""
        out = self.dir / f"out-{len(list(self.dir.iterdir()))}"
        self.good("run", path, "--inputs", inputs, "--output", out)
        return read(out)

    def expected(self, name, call):
        """The same for a stored call of a model."""
        return self.run_alone(model(name), call / "inputs")

    def same(self, opened, feeds, expected, what):
        """All outputs of a run have the expected bits."""
        self.assertEqual(others(opened, feeds, expected), [], what)
