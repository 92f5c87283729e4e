"""Scores of texts, and times of steps."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import InputError
from ._info import Score
from ._sequence import Sequence

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._model import Model

CHUNK = 256  # tokens of a step, if the caller does not say


def _chunks(model: Model, n: int, splits: list[int]) -> list[int]:
    if model.info.last_logits:
        return [1] * n
    if any(length < 1 for length in splits) or sum(splits) > n:
        raise InputError(f"splits {splits} for {n} tokens", status="OUT_OF_RANGE",
                         rule="lengths of calls are at least 1, and at most all tokens together")
    if splits:
        return splits + ([n - sum(splits)] if sum(splits) < n else [])
    return [min(CHUNK, n - at) for at in range(0, n, CHUNK)]


def _log_probabilities(rows: Floats, ids: list[int]) -> list[float]:
    """Natural logarithms of softmax(rows)[i, ids[i]], in double."""
    import numpy as np
    wide = rows[:len(ids)].astype(np.float64)
    peak = wide.max(axis=1)
    sums = np.exp(wide - peak[:, None]).sum(axis=1)
    chosen = wide[np.arange(len(ids)), np.asarray(ids, np.int64)]
    values: list[float] = (chosen - peak - np.log(sums)).tolist()
    return values


def score(model: Model, ids: list[int], splits: list[int]) -> Score:
    """See Model.score."""
    if len(ids) < 2:
        raise InputError(f"{len(ids)} tokens cannot be scored", status="INVALID_INPUT",
                         rule="every token but the first is scored, so at least two are needed")
    with_sequence = Sequence(model, final_length=len(ids))
    found: list[float] = []
    at = 0
    for length in _chunks(model, len(ids), splits):
        rows = with_sequence.step(ids[at:at + length], logits=-1 if length > 1 else 1)
        found += _log_probabilities(rows, ids[at + 1:at + length + 1])
        at += length
    nll = -math.fsum(found)
    return Score(len(ids), nll, math.exp(nll / (len(ids) - 1)), found)


class Timing(NamedTuple):
    """One row of a bench: its name ("pp512": a prompt of 512 tokens; "tg64@512": 64 tokens, one a
    step, after 512), tokens, seconds of each repetition, and their median."""

    name: str
    tokens: int
    seconds: list[float]
    median: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens by the median time."""
        return self.tokens / self.median if self.median > 0 else 0.0


def _time(work: Any, repeat: int) -> list[float]:
    work()  # warm
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return times


def _row(name: str, tokens: int, seconds: list[float]) -> Timing:
    return Timing(name, tokens, seconds, statistics.median(seconds))


def bench(model: Model, prompts: list[int], new: list[int], repeat: int) -> list[Timing]:
    """See Model.bench."""
    rows = []
    ids = [i % max(model.vocabulary, 1) for i in range(1, max(prompts) + max(new, default=0) + 1)]

    def prefill(n: int) -> Sequence:
        made = Sequence(model, final_length=len(ids))
        made.step(ids[:n])
        return made

    for n in prompts:
        rows.append(_row(f"pp{n}", n, _time(lambda: prefill(n), repeat)))
    for n in prompts:
        past = prefill(n)

        def decode(steps: int) -> None:
            fork = past.fork()
            for i in range(steps):
                fork.step(ids[n + i:n + i + 1])

        rows += [_row(f"tg{m}@{n}", m, _time(lambda: decode(m), repeat)) for m in new]
    return rows
