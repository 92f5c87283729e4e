"""The prefix store: cached rows of many sequences, found by their token ids."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from ._library import Handle, Owner, call, decode, id_array, lib, make, out_pointer, text
from ._sequence import Sequence, sequence_options

if TYPE_CHECKING:
    from ._model import Model


class Statistics(NamedTuple):
    """Of a store; see gqac_store_statistics in store.h."""

    hits: int
    misses: int
    reused_tokens: int
    computed_tokens: int
    evictions: int
    bytes: int
    blocks: int
    prefixes: int
    tenants: int
    loaded_files: int
    damaged_files: int
    saved_files: int
    remote_hits: int
    remote_misses: int
    remote_errors: int
    remote_damaged: int
    remote_saved: int
    remote_read_bytes: int
    remote_written_bytes: int


class Prefix(NamedTuple):
    """A prefix that several opened sequences had in common."""

    tenant: str
    length: int
    uses: int


class PrefixStore(Owner):
    """Keeps cached rows, so that a prefix that was computed before is not computed again. Ids are
    compared one by one, and the rows have the bits that a run without the store computes.

    budget, tenant_budget: maximum bytes in memory, of all and of each tenant; folder: an existing
    folder of snapshot files, folder_budget: maximum bytes of them; 0: unlimited. Threads may share a
    store. Raises FileError if the folder cannot be read.
    """

    def __init__(self, model: Model, *, budget: int = 0, tenant_budget: int = 0,
                 folder: str | os.PathLike[str] | None = None, folder_budget: int = 0) -> None:
        self.model = model
        options = make(c.gqac_store_options, budget=budget, tenant_budget=tenant_budget,
                       folder=text(folder), folder_budget=folder_budget)
        made = out_pointer()
        with model.program as program:
            call("gqac_store_create", program, ctypes.byref(options), ctypes.byref(made))
            self._handle = Handle("store", made, "gqac_store_free", model.program)

    @property
    def handle(self) -> Handle:
        """For calls."""
        return self._handle

    def open(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None,
             capacity: int = 0, final_length: int = 0) -> Sequence:
        """A sequence with the longest prefix of `ids` that the tenant has in the store, but never
        with the last id; its length is the number of ids that were reused. What it computes is added to the
        store. Raises InputError if there are no ids."""
        array, n = id_array(ids)
        made, reused = out_pointer(), ctypes.c_int64()
        options = sequence_options(kv, capacity, final_length)
        with self._handle as store:
            call("gqac_store_open", store, text(tenant), array, n, ctypes.byref(options),
                 ctypes.byref(made), ctypes.byref(reused))
            return Sequence.wrap(self.model, made, self._handle)

    def add(self, sequence: Sequence, *, tenant: str | None = None) -> None:
        """Adds all rows of a sequence, however it was made."""
        self._with(sequence, "gqac_store_add", tenant)

    def save(self, sequence: Sequence, *, tenant: str | None = None) -> None:
        """Writes a sequence to the folder. Raises UsageError without one; FileError."""
        self._with(sequence, "gqac_store_save", tenant)

    def _with(self, sequence: Sequence, function: str, tenant: str | None) -> None:
        with self._handle as store, sequence.lock, sequence._handle as pointer:
            call(function, store, text(tenant), pointer)

    def match(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None) -> int:
        """Number of leading ids whose rows the tenant has in memory."""
        array, n = id_array(ids)
        with self._handle as store:
            return int(lib.gqac_store_match(store, text(tenant), text(kv), array, n))

    def pin(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None,
            pinned: bool = True) -> None:
        """Keeps a prefix in memory until it is unpinned (pinned=False) as often. Raises UsageError
        if the store does not have the whole prefix."""
        array, n = id_array(ids)
        with self._handle as store:
            call("gqac_store_pin", store, text(tenant), text(kv), array, n, pinned)

    def evict(self, to_bytes: int = 0) -> None:
        """Removes the least recently used rows until at most `to_bytes` remain."""
        with self._handle as store:
            lib.gqac_store_evict(store, to_bytes)

    @property
    def statistics(self) -> Statistics:
        """Numbers of hits, tokens, bytes and files."""
        found = make(c.gqac_store_statistics)
        with self._handle as store:
            call("gqac_store_get_statistics", store, ctypes.byref(found))
        return Statistics(*[getattr(found, name) for name in Statistics._fields])

    def prefixes(self, most: int = 16) -> list[Prefix]:
        """At most `most` prefixes that were used at least twice: those that saved the most tokens,
        which may be worth pinning."""
        array: Any = (c.gqac_store_prefix * max(most, 0))()
        with self._handle as store:
            n = lib.gqac_store_prefixes(store, len(array), array)
            return [Prefix(decode(p.tenant), p.length, p.uses) for p in array[:n]]
