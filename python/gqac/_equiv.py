"""The proof that no bit depends on how tokens are split into calls."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from ._errors import UsageError
from ._library import (Stop, call, decode, id_array, interruptible, lib, make, no_option,
                       out_pointer, structs, text_array, wholes)

if TYPE_CHECKING:
    from ._model import Model

VIAS = {"split": c.GQAC_EQUIV_SPLIT, "decode": c.GQAC_EQUIV_DECODE, "import": c.GQAC_EQUIV_IMPORT,
        "prefix": c.GQAC_EQUIV_PREFIX, "snapshot": c.GQAC_EQUIV_SNAPSHOT,
        "baked": c.GQAC_EQUIV_BAKED}


class First(NamedTuple):
    """The first differing value: `element` of the logits of the position, or of the past tensor
    `what`. layer None: the logits; plan: lengths of the calls."""

    plan: list[int]
    position: int
    layer: int | None
    what: str
    element: int
    actual: float
    expected: float


class Series(NamedTuple):
    """All plans with one number of threads and one kind of cache."""

    kv: str
    threads: int
    planned: int
    plans: int
    compared: int
    differing: int


class Report(NamedTuple):
    """The outcome: of `compared` values, `differing` differ from the reference run in at least one
    bit. plans: how many plans were run, of `planned`."""

    tokens: int
    batch: int
    planned: int
    plans: int
    compared: int
    differing: int
    reused_tokens: int
    computed_tokens: int
    profile: str
    first: First | None
    series: list[Series]

    @property
    def equal(self) -> bool:
        """No value differs, and something was compared."""
        return self.compared > 0 and self.differing == 0

    def __str__(self) -> str:
        return (f"{'equal' if self.equal else 'different'}: {self.differing} differing values of "
                f"{self.compared}, {self.plans} of {self.planned} plans, {self.tokens} tokens")


class _Options:
    """gqac_equiv_options, and what it points to."""

    def __init__(self, stop: Stop, *, tokens: int = 0, ids: Iterable[int] | None = None,
                 splits: str | Iterable[int] = "all", via: str = "split", batch: int = 1,
                 threads: Iterable[int] = (), kv: Iterable[str] | str = (),
                 budget: float = 0.0) -> None:
        if via not in VIAS:
            raise UsageError(f"via '{via}' is not one of {', '.join(VIAS)}", status="USAGE")
        self.struct = make(c.gqac_equiv_options, tokens=tokens, via=VIAS[via], batch=batch,
                           budget=budget, monitor=ctypes.pointer(stop.monitor))
        if ids is not None:
            self.struct.ids, self.struct.tokens = id_array(ids)
        numbers = wholes("threads", threads)
        self.struct.n_threads = len(numbers)
        self.struct.threads = (ctypes.c_int * len(numbers))(*numbers)
        self._kinds = text_array("kv", kv)
        self.struct.n_kv, self.struct.kv = len(self._kinds), self._kinds
        self._take_splits(splits)

    def _take_splits(self, splits: str | Iterable[int]) -> None:
        if not isinstance(splits, str):
            self.struct.chunks, self.struct.n_chunks = id_array(splits)
        elif splits.startswith("random:") and splits[7:].isdigit() and int(splits[7:]):
            self.struct.random = int(splits[7:])
        elif splits != "all":
            raise UsageError(f"splits '{splits}' is not 'all', 'random:N' or a list of lengths",
                             status="USAGE")


def prove(model: Model, **options: Any) -> Report:
    """See Model.equiv."""
    stop = Stop()
    try:
        given = _Options(stop, **options)
    except TypeError as error:
        raise no_option("Model.equiv", error) from None
    second = model.second_program if given.struct.via in (
        c.GQAC_EQUIV_PREFIX, c.GQAC_EQUIV_SNAPSHOT) else model.program
    with model.program as program, second as fresh:
        if second is not model.program:
            given.struct.fresh = fresh
        made = out_pointer()
        call("gqac_equiv_create", program, ctypes.byref(given.struct), ctypes.byref(made))
        try:
            interruptible(stop, lambda: call("gqac_equiv_run", made))
            return _report(lib.gqac_equiv_get_report(made).contents)
        finally:
            lib.gqac_equiv_free(made)


def _report(r: Any) -> Report:
    series = [Series(decode(s.kv), s.threads, s.planned, s.ran, s.compared, s.differing)
              for s in structs(r.series, r.n_series, c.gqac_equiv_series)]
    first = None
    if r.first:
        f = r.first.contents
        first = First(list(f.chunks[:f.n_chunks]), f.position, None if f.layer < 0 else f.layer,
                      decode(f.what), f.index, f.actual, f.expected)
    return Report(r.tokens, r.batch, r.planned, r.ran, r.compared, r.differing, r.reused_tokens,
                  r.computed_tokens, decode(r.profile), first, series)
