"""The prefix store: cached rows of many sequences, found by their token ids."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _declarations as c
from ._arrays import numpy_type, to_tensor
from ._errors import UsageError
from ._library import (Handle, Owner, call, decode, id_array, instance, lib, make, mapping,
                       model_of, out_pointer, text, used, whole)
from ._sequence import Sequence, sequence_options

if TYPE_CHECKING:
    from ._arrays import Array
    from ._model import Model


class Statistics(NamedTuple):
    """Statistics of a store; see gqac_store_statistics in store.h."""

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


def _lists(pairs: list[tuple[str, Any]]) -> tuple[Any, Any]:
    """Names and tensors as C arrays."""
    names = (ctypes.c_char_p * len(pairs))(*(name.encode() for name, _ in pairs))
    return names, (c.gqac_tensor * len(pairs))(*(tensor for _, tensor in pairs))


@type(c.gqac_remote_options().report)  # type: ignore[untyped-decorator]
def _report(_: int, host: bytes, why: bytes) -> None:
    """Is called by any thread, once for each reason until such a call works again."""
    import logging
    logging.getLogger("gqac").warning("a call of the remote tier %s failed: %s", decode(host),
                                      decode(why))


def _open_remote(address: str, cacert: str | os.PathLike[str] | None,
                 cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None) -> Handle:
    """A client of the server, which connects to nothing yet."""
    options = make(c.gqac_remote_options, address=text("remote", address), report=_report,
                   ca_file=text("remote_cacert", cacert), cert_file=text("remote_cert", cert),
                   key_file=text("remote_key", key))
    made = out_pointer()
    call("gqac_remote_open", ctypes.byref(options), ctypes.byref(made))
    return Handle("remote tier", made, "gqac_remote_free")


class PrefixStore(Owner):
    """Keeps cached rows, so that a prefix that was computed before is not computed again. Ids are
    compared one by one, and the rows have the bits that a run without the store computes.

    budget, tenant_budget: maximum bytes in memory, of all and of each tenant; folder: an existing
    folder of snapshot files, folder_budget: maximum bytes of them; 0: unlimited. Threads may share a
    store. Raises FileError if the folder cannot be read.

    remote: the address of a Redis server, which the stores of several machines share:
    redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss://... for TLS; remote_ms: maximum
    milliseconds for reading one prefix from it, and for writing one value (0: 500). For TLS, files
    in PEM: remote_cacert, certificates of the trusted authorities (None: those of the system);
    remote_cert and remote_key, a client certificate and its key, if the server requires one. A
    server that fails changes no result: `statistics` counts the failure, and the logger "gqac"
    reports the reason. Raises AbsentError if gqac was built without hiredis, UsageError for an
    invalid address or file.
    """

    def __init__(self, model: Model, *, budget: int = 0, tenant_budget: int = 0,
                 folder: str | os.PathLike[str] | None = None, folder_budget: int = 0,
                 remote: str | None = None, remote_ms: int = 0,
                 remote_cacert: str | os.PathLike[str] | None = None,
                 remote_cert: str | os.PathLike[str] | None = None,
                 remote_key: str | os.PathLike[str] | None = None) -> None:
        self.model = model_of(model)
        self._saves = folder is not None or remote is not None
        options = make(c.gqac_store_options, budget=budget, tenant_budget=tenant_budget,
                       folder=text("folder", folder), folder_budget=folder_budget,
                       remote_ms=remote_ms)
        parents = [model.program]
        if remote is not None:
            parents.append(_open_remote(remote, remote_cacert, remote_cert, remote_key))
        elif remote_ms or remote_cacert or remote_cert or remote_key:
            raise UsageError("remote_ms, remote_cacert, remote_cert and remote_key go with remote",
                             status="USAGE")
        made = out_pointer()
        with used(*parents) as (program, *servers):
            if servers:
                options.remote = lib.gqac_remote_functions(servers[0])
            call("gqac_store_create", program, ctypes.byref(options), ctypes.byref(made))
            self._handle = Handle("store", made, "gqac_store_free", *parents)

    @property
    def handle(self) -> Handle:
        """For calls."""
        return self._handle

    def open(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None,
             capacity: int = 0, final_length: int = 0) -> Sequence:
        """A sequence with the longest prefix of `ids` that the tenant has in the store, but without
        the last id; its length is the number of ids that were reused. What it computes is added to
        the store. Raises InputError if there are no ids."""
        array, n = id_array(ids)
        made, reused = out_pointer(), ctypes.c_int64()
        options = sequence_options(kv, capacity, final_length)
        with self._handle as store:
            call("gqac_store_open", store, text("tenant", tenant), array, n, ctypes.byref(options),
                 ctypes.byref(made), ctypes.byref(reused))
            return Sequence.wrap(self.model, made, self._handle)

    def add(self, sequence: Sequence, *, tenant: str | None = None) -> None:
        """Adds all rows of a sequence, however it was made."""
        self._with(sequence, "gqac_store_add", tenant)

    def save(self, sequence: Sequence, *, tenant: str | None = None) -> None:
        """Writes a sequence to the folder, and its full blocks to the remote tier. Raises UsageError
        without either; FileError."""
        self._with(sequence, "gqac_store_save", tenant)

    def _with(self, sequence: Sequence, function: str, tenant: str | None) -> None:
        instance("sequence", sequence, Sequence)
        with self._handle as store, sequence.lock, sequence._handle as pointer:
            call(function, store, text("tenant", tenant), pointer)

    def match(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None) -> int:
        """Number of leading ids whose rows the tenant has in memory."""
        array, n = id_array(ids)
        with self._handle as store:
            return int(lib.gqac_store_match(store, text("tenant", tenant), text("kv", kv), array, n))

    def insert(self, ids: Iterable[int], tensors: Mapping[str, Any], *, row: int = 0,
               tenant: str | None = None, final_length: int = 0) -> None:
        """Adds the rows of the tokens `ids` that another run of the model has computed, for example
        in a session of ONNX Runtime: its past or present tensors [batch, heads, capacity,
        head_size] by name, of which batch row `row` is taken. All must be given; other entries are
        ignored. Raises InputError for wrong shapes and too many ids, UsageError if a tensor is
        missing, ModelError if the model has other caches than rows of attention."""
        array, n = id_array(ids)
        known = {name for pair in self.model.info.kv_pairs for name in (pair.past, pair.present)}
        pairs = [(name, to_tensor(name, value[row:row + 1])) for name, value in mapping("tensors", tensors).items()
                 if name in known]
        names, pasts = _lists([(name, tensor) for name, (tensor, _) in pairs])
        options = sequence_options(None, 0, final_length)
        with self._handle as store:
            call("gqac_prefix_add", store, text("tenant", tenant), array, n, ctypes.byref(options),
                 len(pairs), names, pasts)

    def lookup(self, ids: Iterable[int], *, capacity: int = 0, tenant: str | None = None,
               final_length: int = 0) -> tuple[int, dict[str, Array]]:
        """The number of leading ids, at most all but the last, whose rows the tenant has, and these
        rows as past tensors by name [1, heads, length, head_size]. With a capacity, the tensors have
        that many rows, at most that many are found, and the others are zeros. Raises ModelError if
        the model has other caches than rows of attention."""
        import numpy as np
        array, n = id_array(ids)
        rows, length = whole("capacity", capacity) or n, ctypes.c_int64()
        found = [(pair, np.zeros((1, pair.heads, rows, pair.head_size), numpy_type(
            lib.gqac_dtype_from_name(pair.dtype.encode())))) for pair in self.model.info.kv_pairs]
        names, pasts = _lists([(pair.past, c.gqac_tensor(
            dtype=lib.gqac_dtype_from_name(pair.dtype.encode()), rank=4, data=memory.ctypes.data,
            dims=(ctypes.c_int64 * 8)(*memory.shape))) for pair, memory in found])
        options = sequence_options(None, 0, final_length)
        with self._handle as store:
            call("gqac_prefix_lookup", store, text("tenant", tenant), array, n, ctypes.byref(options),
                 len(found), names, pasts, not capacity, ctypes.byref(length))
        shapes = [tuple(pasts[i].dims[:4]) for i in range(len(found))]
        return length.value, {pair.past: memory.reshape(-1)[:math.prod(shape)].reshape(shape)
                              for (pair, memory), shape in zip(found, shapes)}

    def pin(self, ids: Iterable[int], *, tenant: str | None = None, kv: str | None = None,
            pinned: bool = True) -> None:
        """Keeps a prefix in memory until it is unpinned (pinned=False) as often. Raises UsageError
        if the store does not have the whole prefix."""
        array, n = id_array(ids)
        with self._handle as store:
            call("gqac_store_pin", store, text("tenant", tenant), text("kv", kv), array, n, pinned)

    def evict(self, to_bytes: int = 0) -> None:
        """Removes the least recently used rows until at most `to_bytes` remain."""
        with self._handle as store:
            lib.gqac_store_evict(store, whole("to_bytes", to_bytes))

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
        array: Any = (c.gqac_store_prefix * max(whole("most", most), 0))()
        with self._handle as store:
            n = lib.gqac_store_prefixes(store, len(array), array)
            return [Prefix(decode(p.tenant), p.length, p.uses) for p in array[:n]]
