#!/usr/bin/env python3
"""Sessions of ONNX Runtime on gqac and on its CPU provider: the table of docs/onnxruntime.md.

usage: tools/compare_sessions.py [--library FILE] [--pieces 11,1,4] MODEL.onnx ...

Each model gets one prompt, in one call and in calls of these lengths, on both providers. The table
has gqac's share of the time of all nodes (from ONNX Runtime's profile), how many logits differ
between one call and several and by how much, and the peak memory of the process (VmHWM). Every
number comes from a separate process. `context` is a session of the compiled model.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
NAME = "GqacExecutionProvider"


def open_session(args, model, entries=(), profile=None):
    """A session on the provider that args.one names."""
    import onnxruntime as ort
    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    for name, value in entries:
        options.add_session_config_entry(name, value)
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    if args.one == "cpu":
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    ort.register_execution_provider_library("gqac", str(args.library))
    devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
    options.add_provider_for_devices(devices, {"threads": str(args.threads)})
    return ort.InferenceSession(model, options)


def empty_pasts(session, head_size):
    """Pasts without rows, and states of zeros. Symbolic dimensions are the batch, the rows and the
    head size, in this order."""
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    symbolic = [1, 1, 0, head_size]
    return {i.name: np.zeros([n if isinstance(n, int) else symbolic[at]
                              for at, n in enumerate(i.shape)], types[i.type])
            for i in session.get_inputs() if i.name.startswith("past")}


def head_size_of(model):
    """The head size in genai_config.json in the folder of the model."""
    config = Path(model).parent / "genai_config.json"
    return json.loads(config.read_text())["model"]["decoder"]["head_size"] if config.exists() else 0


def run(session, ids, pieces, head_size):
    """The logits of all rows that the model returns, from calls of these lengths."""
    names, logits, at = [o.name for o in session.get_outputs()], [], 0
    inputs = {i.name: i.shape for i in session.get_inputs()}
    planes = [3, 1] if len(inputs.get("position_ids", ())) == 3 else [1]
    pasts = empty_pasts(session, head_size)
    for n in pieces:
        feeds = {"input_ids": ids[:, at:at + n],
                 "attention_mask": np.ones((1, at + n), np.int64),
                 "position_ids": np.broadcast_to(np.arange(at, at + n), [*planes, n])}
        feeds = {k: v for k, v in feeds.items() if k in inputs} | pasts
        found = dict(zip(names, session.run(None, feeds)))
        logits.append(found["logits"])
        at += n
        stems = {name.split("present", 1)[1]: v for name, v in found.items() if "present" in name}
        pasts = {p: next(v for stem, v in stems.items() if p.endswith(stem)) for p in pasts}
    return np.concatenate(logits, axis=1)


def peak():
    """Peak resident memory of this process, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def share(file):
    """gqac's share of the time of all nodes, in percent."""
    events = [e for e in json.loads(file.read_text()) if e.get("cat") == "Node"
              and e["name"].endswith("_kernel_time")]
    time = {True: 0, False: 0}
    for event in events:
        time[event["args"].get("provider") == NAME] += event["dur"]
    return 100 * time[True] / max(sum(time.values()), 1)


def measure(args):
    """The child: one provider, one model; prints JSON."""
    model, pieces = args.models[0], args.pieces
    head_size = head_size_of(model)
    ids = np.random.default_rng(3).integers(5, 200, (1, sum(pieces)))
    if args.one == "context":
        context = Path(args.folder) / "c.onnx"
        if not context.exists():
            open_session(args, model, [("ep.context_enable", "1"),
                                       ("ep.context_file_path", str(context))])
            return print(json.dumps({}))
        model = str(context)
    profile = Path(args.folder) / "profile" if args.one == "share" else None
    session = open_session(args, model, profile=profile)
    whole, split = (run(session, ids, p, head_size) for p in ([sum(pieces)], pieces))
    result = {"peak": peak()}
    if profile:
        result["share"] = share(Path(session.end_profiling()))
    rows = whole.shape[1] if whole.shape == split.shape else 1  # a model may return only its last
                                                                # row
    a, b = whole[:, -rows:], split[:, -rows:]
    result["logits"], result["differing"] = a.size, int(np.count_nonzero(a != b))
    result["largest"] = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
    return print(json.dumps(result))


def child(args, model, one, folder):
    """Runs `measure` in a separate process."""
    done = subprocess.run(
        [sys.executable, __file__, "--library", args.library, "--one", one, "--folder", folder,
         "--threads", str(args.threads), "--pieces", ",".join(map(str, args.pieces)), model],
        capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{model}, {one}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    parser.add_argument("--library", type=lambda text: Path(text).resolve(),
                        default=ROOT / "build/release/libgqac_ort.so")
    parser.add_argument("--pieces", default=[11, 1, 4],
                        type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", choices=["gqac", "cpu", "context", "share"],
                        help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return measure(args)
    print("| model | share of gqac | logits | differ, gqac | differ, CPU provider | by at most | "
          "MiB, gqac | MiB, context | MiB, CPU provider |\n|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            ours, cpu = (child(args, model, one, folder) for one in ("gqac", "cpu"))
            part = child(args, model, "share", folder)["share"]
            child(args, model, "context", folder)  # writes the context model
            context = child(args, model, "context", folder)
        name = os.path.basename(os.path.dirname(os.path.abspath(model)))
        print(f"| {name} | {part:.0f} % | {ours['logits']} | {ours['differing']} | "
              f"{cpu['differing']} | {cpu['largest']:.2g} | {ours['peak']:.0f} | "
              f"{context['peak']:.0f} | {cpu['peak']:.0f} |", flush=True)
    return None


if __name__ == "__main__":
    main()
