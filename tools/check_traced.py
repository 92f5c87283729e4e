#!/usr/bin/env python3
"""Compare the pairs of tools/traced_families.py with ONNX Runtime, for docs/families.md.

    python tools/check_traced.py DIR [PAIR ...] [--table]

For each pair: `gqac run` of one call after a past, a padded batch, on both targets; is attention
raised (as many nodes of `attend` after `lower` as layers); then logits of 32 teacher-forced tokens
in a sequence, first choices, and `equiv`; and sessions of ONNX Runtime on gqac, which must have the
bits of `gqac run`. --table writes the second part of docs/families.md, which needs all pairs. Exit
1 when a pair fails. Environment: GQAC names the binary, GQAC_ORT the provider (default: beside the
binary).
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import check_families as builder
import traced_families as traced
from export_models import make_ids

import harness
import ortref

LIMIT, TOKENS, PAST, NEW = 2e-5, 32, 9, 7


def calls(runner, path):
    """A call of PAST tokens, and one of NEW tokens after it: with two batch rows, one of which is
    padded on the left if there is a mask; with GroupQueryAttention with one, because that op has no
    padding."""
    ids = make_ids(2 * (PAST + NEW), 1).reshape(2, -1)
    mask = np.ones((2, PAST + NEW), np.int64)
    mask[1, :3] = 0
    covered = mask[:, :PAST], mask
    if ortref.gqa_nodes(onnx.load(path, load_external_data=False)):
        ids, covered = ids[:1], (None, None)
    elif isinstance(runner, ortref.StaticRunner):
        covered = 0, PAST
    first = ids[:, :PAST], runner.empty_past(len(ids)), covered[0]
    _, past = runner.step(*first)
    return [runner.feed(*first), runner.feed(ids[:, PAST:], past, covered[1])]


def run_call(path, runner, feed, scratch):
    """The greatest difference of the logits of a call, on any target."""
    want, worst = runner.run(feed)["logits"], 0.0
    for target in builder.EQUIV:
        got = builder.run(path, feed, target, scratch / target)["logits"]
        worst = max(worst, harness.relative(got, want))
    return worst


def layers(path):
    """The number of layers of a model, from its caches."""
    names = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    return sum(".key" in n or "key_cache" in n for n in names)


def raised(path, scratch, stateless):
    """True if there is a node of attention for each layer."""
    stateless &= not ortref.runner(path).merged  # a sequence uses only one of its branches
    builder.gqac("compile", path, *(("--stateless",) if stateless else ()), "--stop-after", "lower",
                 "--emit", "text", "-o", scratch / "lower.gq")
    text = (scratch / "lower.gq").read_text()
    return sum(text.count(f" = {op} ") for op in ("attend", "attention")) == layers(path)


def sequence(row, path, want, ids, target, scratch):
    """Logits and bits of a sequence on one target."""
    got = builder.score(path, ids, target, scratch)
    row["logits"] = max(row.get("logits", 0), harness.relative(got, want))
    if not row["logits"] <= LIMIT:
        raise ArithmeticError(f"{target}: logits differ by {row['logits']:.1e}")
    if builder.top_differs(got, want, LIMIT * np.abs(want).max()):
        raise ArithmeticError(f"{target}: another first choice than ONNX Runtime")
    done = harness.gqac("equiv", path, "--ids", scratch / "ids.txt", "--target", target,
                        "--format", "json", *builder.EQUIV[target])
    if not done.out:
        raise ArithmeticError(f"{target} equiv: " + " ".join(done.err.split())[:300])
    found = done.json()
    row["mixing"] = [f"{m['op']} {m['node']}" for m in found["mixing"]]
    if found["differing"]:
        raise ArithmeticError(f"{target} equiv: {found['differing']} bits differ")


def check(name, folder):
    """One pair: its row in the table; row["why"] is set if it fails, and row["sessions"] lists what
    is wrong in sessions."""
    row, path = {"pair": name}, folder / "model.onnx"
    try:
        runner = ortref.runner(path)
        ids = make_ids(TOKENS, 0)
        with tempfile.TemporaryDirectory(prefix="traced-") as folder:
            scratch = Path(folder)
            feeds = calls(runner, path)
            row["sessions"] = builder.sessions(path, feeds, scratch)
            row["call"] = run_call(path, runner, feeds[-1], scratch)
            if not row["call"] <= LIMIT:
                raise ArithmeticError(f"a call differs by {row['call']:.1e}")
            if not raised(path, scratch, name not in traced.SEQUENCES):
                raise ArithmeticError("not raised")
            want = runner.score(ids)
            for target in builder.EQUIV:
                sequence(row, path, want, ids, target, scratch)
    except (ArithmeticError, OSError) as error:
        row["why"] = str(error)
    return row


# ---- the table -----------------------------------------------------------------------------------


def cell(name, rows):
    """A pair in the table."""
    if name in traced.REFUSED:
        return "none"
    if name not in rows:
        return ""
    row = rows[name]
    text = f"{max(row['call'], row.get('logits', 0)):.0e}".replace("e-0", "e-")
    return text + (" *" if row["mixing"] else "")


def table(rows):
    """The second part of docs/families.md."""
    by_name = {row["pair"]: row for row in rows}
    exporters = traced.EXPORTERS
    families = list(dict.fromkeys(f.name for e in exporters for f in e.families))
    lines = [HEAD, *(f"- `{e.name}`: {e.says}." for e in exporters), "",
             "| family | " + " | ".join(e.name for e in exporters) + " |",
             "|---" * (len(exporters) + 1) + "|"]
    for family in families:
        cells = [cell(f"{e.name}-{family}", by_name) for e in exporters]
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    mixing = [f"- {row['pair']}: {', '.join(row['mixing'])}" for row in rows if row.get("mixing")]
    lines += ["", "Not supported by the exporter, or refused by ONNX Runtime (none):", ""]
    lines += [f"- {pair}: {why}" for pair, why in traced.REFUSED.items()]
    lines += ["", "Raised only in sequences, and computed as simple ops by `gqac run`:", ""]
    lines += [f"- {pair}: {why}" for pair, why in traced.SEQUENCES.items()]
    lines += ["", "Nodes that mix rows (*):", "", *mixing]
    return "\n".join(lines) + "\n"


HEAD = builder.TRACED + """

Written by `tools/check_traced.py`; `tools/export_traced.py --list` lists the pairs of an exporter
and a family, and makes them: tiny random models of two or three layers, fp32, with scores that have
a spread of 4. A number is the largest difference from ONNX Runtime's logits, relative to the
largest logit, at most 2e-5, on `cpu` and on `ref`. It covers one call of `gqac run` after a past
(two rows, one of them padded on the left; one row for GroupQueryAttention), and 32 teacher-forced
tokens in a sequence. A number also means that there are as many attention nodes as layers after
`lower`, that the most likely token is the same as ONNX Runtime's wherever its margin exceeds the
tolerance, that `gqac equiv` finds no differing bit, and that sessions of ONNX Runtime on gqac, with
its graph optimisation and without it, leave no node to other providers and compute the bits of
`gqac run`: all outputs of the call that makes the past, and of the call after it. `*`: `gqac equiv`
names a node that mixes rows (because of LongRoPE), but finds no differing bit.
"""


if __name__ == "__main__":
    sys.exit(builder.command(__doc__, traced.chosen, check,
                             lambda rows: builder.write_part(builder.TRACED, table(rows))))
