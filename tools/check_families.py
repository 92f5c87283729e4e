#!/usr/bin/env python3
"""Compare the models of tools/families.py with ONNX Runtime, and write docs/families.md.

    python tools/check_families.py DIR [PAIR ...] [--table]

For each pair and each target: `compile`, then logits of 32 teacher-forced tokens compared with
those of ONNX Runtime, the first choice wherever its margin exceeds the tolerance, and `equiv`. Then
sessions of ONNX Runtime on gqac, which must have the bits of `gqac run`.
--table writes docs/families.md, which needs all pairs. Exit 1 if a pair that must pass does not, a
listed exception does, or a session differs. Environment: GQAC names the binary, GQAC_ORT the
provider (default: beside the binary).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import families
from export_models import FIRST, PINS, ROOT, SECOND, case_batch, make_ids
from families import ROUNDED

sys.path.insert(0, str(ROOT / "test" / "python"))

import harness  # noqa: E402
import ort_sessions  # noqa: E402
import ortref  # noqa: E402

TOKENS, LONG = 32, 100
EQUIV = {"cpu": ("--splits", "random:12", "--batch", "3", "--threads", "1,3"),
         "ref": ("--splits", "random:3", "--batch", "2")}
TABLE = ROOT / "docs" / "families.md"
TRACED = "## Traced and other exporters"  # the beginning of the part of check_traced.py
TRANSLATORS = "## An encoder and a decoder"  # and of that of check_translators.py
BY_HAND = "## Compared by hand"  # a part that no tool writes


def exact_experts(model):
    """QMoE becomes MoE with the weights that it represents: ONNX Runtime rounds the factors of
    8-bit experts to 8 bits, which no attribute requests."""
    tensors = {i.name: i for i in model.graph.initializer}
    for node in model.graph.node:
        bits = [a for a in node.attribute if a.name == "expert_weight_bits"]
        if node.op_type != "QMoE" or bits[0].i != 8:
            continue
        for codes, scales in ((2, 3), (5, 6)):
            q, s = (numpy_helper.to_array(tensors[node.input[i]]) for i in (codes, scales))
            weight = (q.astype(np.float32) - 128) * np.repeat(s, q.shape[2] // s.shape[2], axis=2)
            tensors[node.input[codes]].CopyFrom(
                numpy_helper.from_array(weight, node.input[codes]))
        kept = [n for i, n in enumerate(node.input) if i not in (3, 6)]
        node.op_type = "MoE"
        del node.input[:]
        node.input.extend([*kept[:6], "", ""])
        for name in ("expert_weight_bits", "block_size"):
            node.attribute.remove(next(a for a in node.attribute if a.name == name))
    return model


def oracles_of(path, precision):
    """ONNX Runtime on a model; in fp16 also without graph optimisation, which removes roundings (of
    pairs of casts): both results are correct."""
    model = onnx.load(path)
    experts = any(n.op_type == "QMoE" for n in model.graph.node)
    source = exact_experts(model) if experts else path
    ways = (True, False) if precision == "fp16" else (None,)
    return [ortref.Runner(source, how) for how in ways]


def gqac(*args):
    """A run that must succeed."""
    done = harness.gqac(*args)
    if done.code:
        raise ArithmeticError(" ".join(done.err.split())[:400] or f"exit {done.code}")
    return done


def nearest(got, wants):
    """For each row the closest answer."""
    error = [np.abs(got - w).max(1) for w in wants]
    return np.stack(wants)[np.argmin(error, 0), np.arange(len(got))]


def top_differs(got, want, bound):
    """Rows whose first choice differs although the margin of the reference exceeds the limit."""
    ordered = np.sort(want, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > bound
    return int((clear & (got.argmax(1) != want.argmax(1))).sum())


def answers(oracles, ids, tolerance):
    """ONNX Runtime's logits in one call. If activations are rounded to 8 bits, also token by token:
    a difference in the last bit between the two may change a rounding, and both are correct."""
    splits = [None] + [[1] * len(ids)] * (tolerance == ROUNDED)
    return [oracle.score(ids, split) for oracle in oracles for split in splits]


def score(path, ids, target, scratch):
    """Logits of `gqac score`."""
    ids = harness.write_ids(scratch / "ids.txt", ids)
    gqac("score", path, "--ids", ids, "--logits", scratch / "logits.npy", "--target", target)
    return np.load(scratch / "logits.npy")


def compare(row, path, reference, tolerance, target, scratch):
    """Adds the results of one target."""
    gqac("compile", path, "--target", target, "-o", scratch / f"{target}.gqac")
    row[target] = 0.0
    for ids, wants in reference:
        got = score(scratch / f"{target}.gqac", ids, target, scratch)
        want = nearest(got, wants)
        row[target] = max(row[target], harness.relative(got, want))
        if top_differs(got, want, tolerance * np.abs(want).max()):
            raise ArithmeticError(f"{target}: another first choice than ONNX Runtime")
    if not row[target] <= tolerance:
        raise ArithmeticError(f"{target}: logits differ by {row[target]:.1e}")
    ids = harness.write_ids(scratch / "ids.txt", reference[0][0])
    done = harness.gqac("equiv", scratch / f"{target}.gqac", "--ids", ids, "--target", target,
                        "--format", "json", *EQUIV[target])
    if not done.out:
        raise ArithmeticError(f"{target} equiv: " + " ".join(done.err.split())[:400])
    found = done.json()
    row[f"{target} bits"] = found["differing"]
    if done.code or found["differing"] or found["mixing"]:
        raise ArithmeticError(f"{target} equiv: {found['differing']} bits differ {found['mixing']}")


def run(path, feed, target, folder):
    """All outputs of `gqac run`; the inputs and outputs become files in this folder."""
    (folder / "in").mkdir(parents=True)
    for name, value in feed.items():
        np.save(folder / "in" / f"{name}.npy", value)
    gqac("run", path, "--inputs", folder / "in", "-o", folder / "out", "-q", "--target", target)
    return ort_sessions.read(folder / "out")


def sessions(path, feeds, scratch):
    """What is wrong in sessions of ONNX Runtime on gqac that run these calls."""
    try:
        runs = [(feed, run(path, feed, "cpu", scratch / f"call{i}"))
                for i, feed in enumerate(feeds)]
        return ort_sessions.differences(path, runs, scratch)
    except Exception as error:  # ONNX Runtime's errors have no common class
        return [" ".join(str(error).split())[:400]]


def calls(oracle):
    """A first prompt, one more after it, and one token after both; also two prompts of different
    lengths, which need padding, if the pasts of a first call have no elements."""
    ids = make_ids(FIRST + SECOND + 1, 0)
    feeds = [feed for feed, _ in oracle.calls(ids, [FIRST, SECOND, 1])]
    filled = oracle.states or oracle.windowed
    return feeds if filled else [*feeds, case_batch(oracle, ids)[0]]


def check(name, folder):
    """One pair: its row in the table; row["why"] is set if it fails, and row["sessions"] lists what
    is wrong in sessions."""
    family, precision = families.pairs()[name]
    tolerance = families.PRECISIONS[precision].tolerance
    row = {"pair": name, "tolerance": tolerance}
    path = folder / "model.onnx"
    if not path.exists():
        row["why"] = "the builder refuses it"
        return row
    with tempfile.TemporaryDirectory(prefix="families-") as scratch:
        try:
            oracles = oracles_of(path, precision)
            lengths = [TOKENS, LONG] if family.long_rope else [TOKENS]
            ids = [make_ids(n, families.PROMPT.get(name, 0)) for n in lengths]
            reference = [(i, answers(oracles, i, tolerance)) for i in ids]
            feeds = calls(oracles[0])
        except Exception as error:
            row["why"] = "ONNX Runtime: " + " ".join(str(error).split())[:300]
            return row
        row["sessions"] = sessions(path, feeds, Path(scratch))
        try:
            for target in EQUIV:
                compare(row, path, reference, tolerance, target, Path(scratch))
        except ArithmeticError as error:
            row["why"] = str(error)
    return row


# ---- the table -----------------------------------------------------------------------------------


def cell(row):
    """A pair in the table."""
    if row["pair"] in families.EXCEPT:
        return "except"
    return f"{max(row['cpu'], row['ref']):.0e}".replace("e-0", "e-")


def table(rows):
    """docs/families.md."""
    commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h", "--abbrev=12", "--",
                             "src"], capture_output=True, text=True, check=True).stdout.strip()
    versions = ", ".join(f"{k} {v}" for k, v in PINS.items())
    names = list(families.PRECISIONS)
    by_pair = {row["pair"]: row for row in rows}
    lines = [HEAD.format(commit=commit, versions=versions),
             "| family | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for family in families.FAMILIES:
        cells = [cell(by_pair[f"{family.name}-{p}"]) for p in names]
        lines.append(f"| {family.name} | " + " | ".join(cells) + " |")
    limits = ", ".join(f"{n} {p.tolerance:.0e}".replace("e-0", "e-")
                       for n, p in families.PRECISIONS.items())
    lines += ["", f"Tolerances: {limits}.", ""]
    lines += ["## Exceptions", ""]
    lines += [f"- {pair}: {why}" for pair, why in families.EXCEPT.items()] or ["None."]
    return "\n".join(lines) + "\n"


def write_part(heading, text):
    """Replaces the part of docs/families.md that begins with this heading; "": the first part."""
    parts, at = {"": ""}, ""
    for line in TABLE.read_text().splitlines(keepends=True) if TABLE.exists() else ():
        at = line.strip() if line.strip() in (TRACED, TRANSLATORS, BY_HAND) else at
        parts[at] = parts.get(at, "") + line
    parts[heading] = text
    TABLE.write_text("\n".join(parts[h].rstrip("\n") + "\n"
                               for h in ("", TRACED, TRANSLATORS, BY_HAND) if h in parts))


HEAD = """# Families

Written by `tools/check_families.py` with the sources of commit {commit},
{versions}.

The table covers tiny random models of every family of the model builder, in every precision;
`tools/families.py` makes them and documents how. A number is the largest difference from ONNX
Runtime's logits over 32 teacher-forced tokens (also over 100 for models with LongRoPE), relative to
the largest logit, on either target. A number also means that the most likely token is the same as
ONNX Runtime's wherever its margin exceeds the tolerance, that `gqac equiv` finds no differing bit
and no node that mixes rows, on `cpu` (batches, threads) and on `ref`, and that sessions of ONNX
Runtime on gqac leave no node to other providers and compute the bits of `gqac run`. Every pair of a
family and a precision must pass, except those listed below; their sessions must pass too.

Details of the comparison:

- The [sessions](onnxruntime.md) run a prompt of 9 tokens, then 15 and 1 more, and a batch of
  prompts of 9 and 5 tokens (not for LFM2, Qwen 3.5 and `mistral-window`, whose first calls have
  pasts with elements), with ONNX Runtime's graph optimisation and without it. All outputs are
  compared.
- Files of `qdq` are compared with ONNX Runtime without graph optimisation, which would round
  activations to 8 bits.
- Where the file requires such rounding (`int4-sym`, `int8`), the logits of ONNX Runtime differ by
  up to 3e-2 between one call and token by token, because a change of the last bit can change how a
  value is rounded. Each row is compared with the nearer of the two. Rows of `fp16` are likewise
  compared with the nearer result of ONNX Runtime with and without graph optimisation, which removes
  some roundings.
- In `gpt-oss-int8`, QMoE is replaced with MoE on the dequantised weights, because ONNX Runtime
  rounds activations of 8-bit experts to 8 bits, which no attribute requires.
- `fp16` is what the builder makes for cuda, but with the norms of q and k outside of attention, as
  ONNX Runtime's CPU kernels require.
- `mistral-window` keeps only the rows of the window in its cache, which is the builder's default;
  the other families with windows keep all rows.
- `int4-asym` and `qdq` have a separate embedding: with a tied one, the builder makes an invalid
  file or none.
"""


def command(doc, chosen, check_one, write, excepted=()):
    """The command line of a table's tool: checks each pair that `chosen` selects; returns the exit
    code."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*")
    parser.add_argument("--table", action="store_true", help="write its part of docs/families.md")
    args = parser.parse_args()
    if args.table and args.pairs:
        sys.exit("--table needs all pairs")
    rows, wrong = [], 0
    for name in chosen(args.pairs):
        row = check_one(name, args.folder / name)
        rows.append(row)
        bad = ("why" in row) != (name in excepted) or bool(row.get("sessions"))
        wrong += bad
        print(json.dumps(row), "" if not bad else "  <-- WRONG", flush=True)
    if args.table and not wrong:
        write(rows)
    print(f"{len(rows)} pairs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(command(__doc__, families.chosen, check, lambda rows: write_part("", table(rows)),
                     families.EXCEPT))
