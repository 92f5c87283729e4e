"""Scores of texts, and times of steps."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ._errors import InputError, UsageError
from ._info import Score
from ._library import call
from ._sequence import Sequence

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._model import Model

CHUNK = 256  # tokens of a step, if the caller does not say


def _chunks(model: Model, n: int, splits: list[int]) -> list[int]:
    if any(length < 1 for length in splits) or sum(splits) > n:
        raise InputError(f"splits {splits} do not divide {n} tokens", status="OUT_OF_RANGE",
                         rule="each length is at least 1, and their sum is at most the number of tokens")
    if model.info.last_logits:
        return [1] * n
    if splits:
        return splits + ([n - sum(splits)] if sum(splits) < n else [])
    return [min(CHUNK, n - at) for at in range(0, n, CHUNK)]


def _log_probabilities(rows: Floats, ids: list[int]) -> list[float]:
    """Natural logarithms of softmax(rows)[i, ids[i]]; NaN where a logit is NaN or +inf."""
    import numpy as np
    found = []
    for row, token in zip(rows, ids):
        value = ctypes.c_double()
        call("gqac_log_probabilities", row.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
             row.size, token, ctypes.byref(value), 0, None, None)
        found.append(value.value if (row < np.inf).all() else math.nan)
    return found


def score(model: Model, ids: list[int], splits: list[int]) -> Score:
    """See Model.score."""
    if len(ids) < 2:
        raise InputError(f"{len(ids)} tokens cannot be scored", status="INVALID_INPUT",
                         rule="every token but the first is scored, so at least two are needed")
    sequence = Sequence(model, final_length=len(ids))
    found: list[float] = []
    at = 0
    for length in _chunks(model, len(ids), splits):
        rows = sequence.step(ids[at:at + length], logits=-1 if length > 1 else 1)
        found += _log_probabilities(rows, ids[at + 1:at + length + 1])
        at += length
    nll = 0.0
    for value in found:  # one after another, as `gqac score` adds them; sum() may compensate
        nll -= value
    try:
        perplexity = math.exp(nll / (len(ids) - 1))
    except OverflowError:
        perplexity = math.inf
    return Score(len(ids), nll, perplexity, found)


class Timing(NamedTuple):
    """One row of a bench: its name ("pp512": a prompt of 512 tokens; "tg64@512": 64 tokens, one per
    step, after 512), tokens, seconds of each repetition, and their median."""

    name: str
    tokens: int
    seconds: list[float]
    median: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of the median time."""
        return self.tokens / self.median if self.median > 0 else 0.0


def _time(begin: Callable[[], Sequence], work: Callable[[Sequence], None],
          repeat: int) -> list[float]:
    """Seconds of the work on a new sequence each time, after one run to warm up."""
    times = []
    for _ in range(repeat + 1):
        sequence = begin()
        began = time.perf_counter()
        work(sequence)
        times.append(time.perf_counter() - began)
        sequence.close()
    return times[1:]


def _row(name: str, tokens: int, seconds: list[float]) -> Timing:
    import statistics
    return Timing(name, tokens, seconds, statistics.median(seconds))


def bench(model: Model, prompts: list[int], new: list[int], repeat: int) -> list[Timing]:
    """See Model.bench."""
    if min([*prompts, *new, repeat]) < 1:
        raise UsageError("prompt, new and repeat must be at least 1", status="USAGE")
    longest = max(prompts, default=0) + max(new, default=0)
    ids = [i % max(model.vocabulary, 1) for i in range(longest)]

    def prefill(sequence: Sequence, n: int) -> None:
        sequence.step(ids[:n])

    def decode(sequence: Sequence, n: int, m: int) -> None:
        for i in range(n, n + m):
            sequence.step(ids[i:i + 1])

    rows = [_row(f"pp{n}", n, _time(lambda: Sequence(model, final_length=n),
                                    lambda sequence: prefill(sequence, n), repeat))
            for n in prompts]
    for n in prompts:
        for m in new:
            past = Sequence(model, final_length=n + m)
            prefill(past, n)
            rows.append(_row(f"tg{m}@{n}", m, _time(
                past.fork, lambda sequence: decode(sequence, n, m), repeat)))
    return rows
