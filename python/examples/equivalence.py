#!/usr/bin/env python3
"""How many logits change with the split of a prompt into two calls: gqac beside ONNX Runtime on the
same model, as a plot or, without a file name, as a table. Needs onnxruntime.

    python equivalence.py MODEL.onnx [PLOT]
"""

from __future__ import annotations

import sys
from typing import Any

import gqac
import numpy as np
import onnxruntime

TOKENS = 32


def feeds(model: gqac.Model, ids: list[int], past: dict[str, Any]) -> dict[str, Any]:
    """Inputs of one call of a decoder of the model builder."""
    cached = next(iter(past.values())).shape[2]
    new = {"input_ids": np.asarray([ids]),
           "attention_mask": np.ones((1, cached + len(ids)), np.int64)}
    return {**new, **past}


def with_runtime(model: gqac.Model, session: Any, ids: list[int], split: int) -> Any:
    """Logits of all positions from two calls of ONNX Runtime (one if split is 0)."""
    pairs = model.info.kv_pairs
    kinds = {"f32": np.float32, "f16": np.float16}
    past = {p.past: np.zeros((1, p.heads, 0, p.head_size), kinds[p.dtype]) for p in pairs}
    names = [output.name for output in session.get_outputs()]
    rows = []
    for part in (ids[:split], ids[split:]):
        if part:
            found = dict(zip(names, session.run(names, feeds(model, part, past))))
            past = {p.past: found[p.present] for p in pairs}
            rows.append(found["logits"][0].astype(np.float32))
    return np.concatenate(rows)


def with_gqac(model: gqac.Model, ids: list[int], split: int) -> Any:
    """The same from a sequence of gqac."""
    sequence = model.sequence()
    parts = [part for part in (ids[:split], ids[split:]) if part]
    return np.concatenate([sequence.step(part, logits=-1) for part in parts])


def main(path: str, plot: str | None = None) -> None:
    """Compares every split with one call."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with gqac.Model(path) as model:
        ids = [i * 7 % model.vocabulary for i in range(TOKENS)]
        one = with_gqac(model, ids, 0), with_runtime(model, session, ids, 0)
        rows = [(k, int((with_gqac(model, ids, k) != one[0]).sum()),
                 int((with_runtime(model, session, ids, k) != one[1]).sum()))
                for k in range(1, TOKENS)]
    if not plot:
        print(f"differing logits of {one[0].size}, by length of the first call")
        for split, ours, theirs in rows:
            print(f"{split:4d}  gqac {ours:8d}   onnxruntime {theirs:8d}")
        return
    import matplotlib.pyplot as plt

    splits, ours_all, theirs_all = zip(*rows)
    plt.step(splits, theirs_all, label="ONNX Runtime")
    plt.step(splits, ours_all, label="gqac")
    plt.xlabel(f"tokens in the first of two calls, of {TOKENS}")
    plt.ylabel("logits with other bits than in one call")
    plt.legend()
    plt.savefig(plot)


if __name__ == "__main__":
    main(*sys.argv[1:3])
