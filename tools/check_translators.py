#!/usr/bin/env python3
"""Compare the pairs of tools/export_translators.py with ONNX Runtime, for docs/families.md.

    python tools/check_translators.py DIR [NAME ...] [--table]

For each on both targets: the states of the encoder; logits of 32 teacher-forced tokens in one call
of the decoder, and token by token after a past, in the merged decoder and in the two files from
which it is made; first choices; the ids of `generate`; the bits that differ between calls with the
same tokens. --table writes the third part of docs/families.md, which needs all pairs. Exit 1 if one
fails.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import check_families as builder
from export_translators import BANDS, FAMILIES, FRAMES, SPEECH, VOCAB

import harness
import onnxruntime as ort

LIMIT, TOKENS, SOURCE = 2e-5, 32, 9
HEADS, SIZE = 4, 8  # of every family
THREADS = (1, 3)


class Ours:
    """A file run by `gqac run`."""

    def __init__(self, path, target, scratch):
        self.path, self.target, self.scratch, self.calls = path, target, scratch, 0
        info = harness.gqac("inspect", path, "--format", "json").json()
        self.inputs = {i["name"]: i for i in info["inputs"]}

    def run(self, feed, threads=1):
        """Results by name; inputs that the file does not have are omitted."""
        self.calls += 1
        into, out = (self.scratch / f"{word}{self.calls}" for word in ("in", "out"))
        into.mkdir(exist_ok=True)
        for name, value in feed.items():
            if name in self.inputs:
                np.save(into / f"{name}.npy", value)
        builder.gqac("run", self.path, "--inputs", into, "-o", out, "-q", "--target", self.target,
                     "--threads", threads)
        return {p.stem: np.load(p) for p in out.glob("*.npy")}


class Theirs:
    """A file in ONNX Runtime."""

    def __init__(self, path):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(str(path), options,
                                            providers=["CPUExecutionProvider"])
        self.inputs = {i.name: i for i in self.session.get_inputs()}

    def run(self, feed):
        """Results by name."""
        names = [o.name for o in self.session.get_outputs()]
        feed = {k: v for k, v in feed.items() if k in self.inputs}
        return dict(zip(names, self.session.run(names, feed), strict=True))


def source(family):
    """The input of an encoder, two batch rows; if it is ids, one row is shorter."""
    rng = np.random.default_rng(11)
    if family.task == SPEECH:
        return {"input_features": rng.standard_normal((2, BANDS, FRAMES)).astype(np.float32)}
    mask = np.ones((2, SOURCE), np.int64)
    mask[1, 6:] = 0
    return {"input_ids": rng.integers(3, VOCAB, (2, SOURCE)), "attention_mask": mask}


def decoder_feed(given, states, ids):
    """Inputs of a decoder without a past."""
    return {"input_ids": ids, "encoder_hidden_states": states,
            "encoder_attention_mask": given.get("attention_mask")}


def empty(inputs, states):
    """Caches of the first call: those of the encoder have the rows of its states, which nothing
    reads."""
    batch, rows, _ = states.shape
    return {n: np.zeros((batch, HEADS, rows if ".encoder." in n else 0, SIZE), np.float32)
            for n in inputs if n.startswith("past_key_values")}


def token_by_token(first, later, feed, inputs, threads=1):
    """The logits of the ids one by one: `first` creates the caches, `later` continues them."""
    ids, rows = feed["input_ids"], []
    past = empty(inputs, feed["encoder_hidden_states"])
    for at in range(ids.shape[1]):
        answer = (later if at else first).run({
            **feed, **past, "input_ids": ids[:, at:at + 1],
            "use_cache_branch": np.array([at > 0])}, threads)
        rows.append(answer["logits"])
        for name in past:  # those of the encoder are computed once
            made = answer.get(name.replace("past_key_values", "present"))
            if made is not None and made.size:
                past[name] = made
    return np.concatenate(rows, 1)


def differing(a, b):
    """The number of values whose bits differ."""
    return int((a.view(np.uint32) != b.view(np.uint32)).sum())


def near(row, key, got, want):
    """Records the difference; if it is too large, records a failure."""
    row[key] = max(row.get(key, 0), harness.relative(got, want))
    if not row[key] <= LIMIT:
        raise ArithmeticError(f"{key} differs by {row[key]:.1e}")


def check_target(row, folder, feeds, want, target, scratch):
    """One target: numbers, first choices and bits."""
    def ours(name):
        place = scratch / f"{target}-{name}"
        place.mkdir()
        return Ours(folder / f"{name}.onnx", target, place)

    encoder, whole, merged, later = (ours(n) for n in (
        "encoder_model", "decoder_model", "decoder_model_merged", "decoder_with_past_model"))
    states = encoder.run(feeds[0])["last_hidden_state"]
    near(row, "encoder", states, feeds[1]["encoder_hidden_states"])
    feed = {k: v for k, v in feeds[1].items() if v is not None}
    calls = [whole.run(feed)["logits"],
             token_by_token(merged, merged, feed, merged.inputs),
             token_by_token(whole, later, feed, merged.inputs)]
    for key, got in zip(("call", "tokens", "tokens"), calls, strict=True):
        near(row, key, got, want)
        flat = got.reshape(-1, got.shape[-1]), want.reshape(-1, got.shape[-1])
        if builder.top_differs(*flat, LIMIT * np.abs(want).max()):
            raise ArithmeticError(f"{target}: another first choice than ONNX Runtime")
    again = [differing(token_by_token(merged, merged, feed, merged.inputs, THREADS[1]), calls[1]),
             differing(calls[2], calls[1]), differing(token_by_token(
                 merged, merged, {k: v[:1] for k, v in feed.items()}, merged.inputs),
                 calls[1][:1])]
    if any(again):
        raise ArithmeticError(f"{target}: bits differ between threads, files, batches: {again}")
    row["split"] = row.get("split", 0) + differing(calls[0], calls[1])


def greedy(decoder, feed, start):
    """The likeliest ids, computed from all ids every time; one row."""
    ids = [start]
    for _ in range(TOKENS):
        logits = decoder.run({**feed, "input_ids": np.array([ids])})["logits"]
        ids.append(int(logits[0, -1].argmax()))
    return ids[1:]


def check_generate(folder, given, feed, start, scratch):
    """`generate` returns the ids of ONNX Runtime, up to an end id."""
    one = {k: v[:1] for k, v in feed.items() if v is not None}
    want = greedy(Theirs(folder / "decoder_model.onnx"), one, start)
    if "input_features" in given:
        np.save(scratch / "features.npy", given["input_features"][:1])
        flags = ("--features", scratch / "features.npy")
    else:
        flags = ("--ids", harness.write_ids(scratch / "ids.txt", given["input_ids"][0]))
    got = builder.gqac("generate", folder, *flags, "-n", TOKENS, "--format", "json").json()["ids"]
    if got != want[:len(got)]:
        raise ArithmeticError(f"generate: {got}, not {want}")


def check(name, folder):
    """One pair: its row in the table; row["why"] is set if it fails."""
    family = next(f for f in FAMILIES if f.name == name)
    row, start = {"pair": name}, family.config["decoder_start_token_id"]
    try:
        given = source(family)
        states = Theirs(folder / "encoder_model.onnx").run(given)["last_hidden_state"]
        ids = np.random.default_rng(12).integers(3, VOCAB, (2, TOKENS))
        ids[:, 0] = start
        feed = decoder_feed(given, states, ids)
        want = Theirs(folder / "decoder_model.onnx").run(feed)["logits"]
        with tempfile.TemporaryDirectory(prefix="translators-") as scratch:
            for target in builder.EQUIV:
                check_target(row, folder, (given, feed), want, target, Path(scratch))
            check_generate(folder, given, feed, start, Path(scratch))
        info = harness.gqac("inspect", folder / "decoder_model_merged.onnx", "--invariance",
                            "--format", "json").json()
        row["mixing"] = [f"{m['op']} {m['node']}" for m in info["mixing"]]
        if row["split"] and not row["mixing"]:
            raise ArithmeticError("bits depend on how tokens are split, and no node is named")
    except (ArithmeticError, OSError) as error:
        row["why"] = str(error)
    return row


def table(rows):
    """The third part of docs/families.md."""
    lines = [HEAD, "| family | encoder | one call | token by token | bits by split |",
             "|---" * 5 + "|"]
    for row in rows:
        numbers = [f"{row[k]:.0e}".replace("e-0", "e-") for k in ("encoder", "call", "tokens")]
        split = f"{row['split']} differ" if row["split"] else "equal"
        lines.append(f"| {row['pair']} | {' | '.join(numbers)} | {split} |")
    named = [f"- {row['pair']}: {', '.join(row['mixing'])}" for row in rows if row["split"]]
    if named:
        lines += ["", "Nodes that mix rows, where bits differ:", "", *named]
    return "\n".join(lines) + "\n"


HEAD = builder.TRANSLATORS + """

Written by `tools/check_translators.py`; `tools/export_translators.py` makes the models: Optimum's
exports of tiny random models, fp32, each with an encoder, a decoder without a past, a decoder with
a past, and both decoders in one file (`decoder_model_merged.onnx`). A number is the largest
difference from ONNX Runtime, relative to the largest value, at most 2e-5, on `cpu` and on `ref`: of
the encoder's states (two rows, for ids one of them padded), of the logits of 32 teacher-forced
tokens in one call, and of the same tokens one by one after a past. A number also means that the
most likely token is the same as ONNX Runtime's, that `gqac generate` prints the same ids, and that,
token by token, the merged file and the two separate decoders produce the same bits for each number
of threads and of rows. `gqac equiv` does not support these models, so the last column compares the
bits of one call with those of a call for each token.
"""


def write(rows):
    """Writes its part of the file."""
    builder.write_part(builder.TRANSLATORS, table(rows))


if __name__ == "__main__":
    sys.exit(builder.command(__doc__, lambda names: names or [f.name for f in FAMILIES], check,
                             write))
