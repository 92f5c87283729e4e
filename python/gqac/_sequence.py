"""Sequences: the cached rows of one conversation, and the step that appends tokens."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

from . import _declarations as c
from ._errors import InputError, UsageError
from ._library import (Handle, Owner, call, id_array, instance, interruptible, lib, make,
                       model_of, out_pointer, text, whole, wrong_type)

if TYPE_CHECKING:
    from ._arrays import Floats
    from ._model import Lease, Model

SHORT_STEP = 16  # tokens; a longer step can be ended by Ctrl-C while it runs

Ids = Iterable[int]


def sequence_options(kv: str | None, capacity: int, final_length: int) -> Any:
    """gqac_sequence_options."""
    return make(c.gqac_sequence_options, kv=text("kv", kv), capacity=capacity, final_length=final_length)


class Sequence(Owner):
    """One conversation: its cached rows, its length and the ids of its tokens.

    kv: kind of cache: "contiguous" (default), "paged", "windowed", "quantised" or "quantised4"; all
    but the last two have the same bits. capacity: maximum number of tokens; 0: as many as fit into
    memory. final_length: the length that the sequence will reach, by which a model with LongRoPE
    chooses its table; 0: unknown. Threads that use the same sequence wait for each other. Raises
    UsageError for an unknown kind, ModelError if the model cannot have it.
    """

    def __init__(self, model: Model, *, kv: str | None = None, capacity: int = 0,
                 final_length: int = 0) -> None:
        made = out_pointer()
        options = sequence_options(kv, capacity, final_length)
        with model_of(model).program as program:
            call("gqac_sequence_create", program, ctypes.byref(options), ctypes.byref(made))
            self._take(model, made)

    def _take(self, model: Model, pointer: Any, *parents: Handle) -> None:
        self.model = model
        self.lock = threading.RLock()
        self._handle = Handle("sequence", pointer, "gqac_sequence_free", model.program, *parents)
        self._parents = parents

    @classmethod
    def wrap(cls, model: Model, pointer: Any, *parents: Handle) -> Sequence:
        """A sequence that a call has created."""
        made = cls.__new__(cls)
        made._take(model, pointer, *parents)
        return made

    def __len__(self) -> int:
        """Number of tokens."""
        with self._handle as sequence:
            return int(lib.gqac_sequence_length(sequence))

    def __bool__(self) -> bool:
        return True

    @property
    def kv(self) -> str:
        """The kind of cache."""
        with self._handle as sequence:
            return str(lib.gqac_sequence_kind(sequence).decode())

    @property
    def ids(self) -> list[int]:
        """Ids of the tokens. Imported tokens, whose ids are unknown, are left out."""
        first, count = ctypes.c_int64(), ctypes.c_int64()
        with self.lock, self._handle as sequence:
            ids = lib.gqac_sequence_ids(sequence, ctypes.byref(first), ctypes.byref(count))
            return ids[:count.value] if ids else []

    @property
    def computed(self) -> int:
        """How many tokens steps have computed in this sequence, repeated ones included."""
        with self._handle as sequence:
            return int(lib.gqac_sequence_computed(sequence))

    @property
    def bytes(self) -> int:
        """Bytes that the sequence holds in blocks, states and ids; forks share some of them."""
        with self.lock, self._handle as sequence:
            return int(lib.gqac_sequence_bytes(sequence, None))

    def step(self, ids: Ids, *, logits: int = 1, embeddings: Any = None,
             position: int | None = None) -> Floats:
        """Appends tokens and returns logits, float32 [logits, vocabulary]; the last row predicts the
        token after the last of `ids`.

        logits: number of rows, those of the last tokens; -1: of every token; 0: none, [0, 0].
        embeddings: float32 [tokens, E], for a model that takes embeddings; `ids` are then any
        numbers >= 0. position: the length that the sequence must have, as a check. The array is
        read-only and shares the memory of gqac; it stays valid as long as it is referenced. (If
        more than 4 such arrays of a model are referenced, further ones are copies.) On failure the
        sequence has not changed. Raises InputError for an id that is not in the vocabulary,
        CapacityError, RecomputeError.
        """
        return step([Item(self, ids, logits, embeddings, position)])[0]

    def rewind(self, length: int) -> None:
        """Shortens the sequence to its first `length` tokens. Raises InputError if it is shorter, or
        cannot be rewound so far (see gqac_sequence_rewind in sequence.h)."""
        with self.lock, self._handle as sequence:
            call("gqac_sequence_rewind", sequence, whole("length", length))

    def fork(self) -> Sequence:
        """A second sequence with the same tokens, which shares the rows until one of them changes
        them."""
        made = out_pointer()
        with self.lock, self._handle as sequence:
            call("gqac_sequence_fork", sequence, ctypes.byref(made))
            return Sequence.wrap(self.model, made, *self._parents)

    def snapshot(self) -> Snapshot:
        """The sequence frozen as it is now, to restore or to save; it copies no rows."""
        made = out_pointer()
        with self.lock, self._handle as sequence:
            call("gqac_snapshot_take", sequence, ctypes.byref(made))
            return Snapshot(self.model, made)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves tokens and rows to a file, which appears complete or not at all. Raises
        FileError."""
        self.snapshot().save(path)

    @staticmethod
    def load(model: Model, path: str | os.PathLike[str]) -> Sequence:
        """Loads a sequence that was saved by the same model with the same options, target and
        numerics profile. Raises FileError; InputError: the file is damaged; UsageError: it is of
        another model."""
        return Snapshot.load(model, path).restore()


class Snapshot(Owner):
    """A frozen copy of a sequence. It never changes, and threads may share it."""

    def __init__(self, model: Model, pointer: Any) -> None:
        self.model = model
        self._handle = Handle("snapshot", pointer, "gqac_snapshot_free", model.program)

    @classmethod
    def load(cls, model: Model, path: str | os.PathLike[str]) -> Snapshot:
        """Reads a file of `save`, with the errors of Sequence.load."""
        made = out_pointer()
        with model_of(model).program as program:
            call("gqac_snapshot_load", program, text("path", path), ctypes.byref(made))
            return cls(model, made)

    def __len__(self) -> int:
        """Number of tokens."""
        with self._handle as snapshot:
            return int(lib.gqac_snapshot_length(snapshot))

    def __bool__(self) -> bool:
        return True

    def restore(self, *, capacity: int | None = None, final_length: int = 0) -> Sequence:
        """A sequence with the tokens and rows of the snapshot. capacity None: that of the original
        sequence. Raises CapacityError."""
        made = out_pointer()
        options = None
        if capacity is not None or final_length:
            options = ctypes.byref(sequence_options(None, capacity or 0, final_length))
        with self._handle as snapshot:
            call("gqac_snapshot_restore", snapshot, options, ctypes.byref(made))
            return Sequence.wrap(self.model, made)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the snapshot to a file. Raises FileError."""
        with self._handle as snapshot:
            call("gqac_snapshot_save", snapshot, text("path", path))


class Item:
    """The new tokens of one sequence in a step; fields are the arguments of Sequence.step."""

    def __init__(self, sequence: Sequence, ids: Ids, logits: int = 1, embeddings: Any = None,
                 position: int | None = None) -> None:
        self.sequence, self.logits = instance("sequence", sequence, Sequence), logits
        self.ids, self.count = id_array(ids)
        self.embeddings = embeddings
        self.position = None if position is None else ctypes.c_int64(whole("position", position))
        if self.position is not None and self.position.value != position:
            raise InputError(f"position {position} does not fit into 64 bits", status="OUT_OF_RANGE")

    def fill(self, pointer: Any) -> tuple[Any, Any]:
        """The gqac_step_item, and what must live as long as it."""
        item = make(c.gqac_step_item, sequence=pointer, tokens=self.ids, count=self.count,
                    n_logits=self.logits)
        if self.position is not None:
            item.position = ctypes.pointer(self.position)
        kept = None
        if self.embeddings is not None:
            import numpy as np
            try:
                kept = np.ascontiguousarray(self.embeddings, np.float32)
            except (TypeError, ValueError):
                raise wrong_type("embeddings", self.embeddings, "an array of numbers") from None
            size = int(self.sequence.model.info.embedding_size)
            if kept.shape != (self.count, size):
                raise UsageError(f"the embeddings of {self.count} tokens have the shape {list(kept.shape)}, "
                                 f"but must have [{self.count}, {size}]", status="USAGE")
            item.embeddings = kept.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        return item, kept


Items = Iterable[Union[Item, tuple[Sequence, Ids]]]


def step(items: Items) -> list[Floats]:
    """Appends tokens to different sequences of one model in one call: items are `Item`s, or pairs
    (sequence, ids). Returns the logits of each, as Sequence.step does. It succeeds or fails as a
    whole; Error.index is the item that failed."""
    if not isinstance(items, Iterable):
        raise wrong_type("items", items, "a list of items")
    made = [_item(i, item) for i, item in enumerate(items)]
    if not made:
        raise UsageError("the step has no items", status="USAGE")
    model = made[0].sequence.model
    locks = [lock for _, lock in sorted({id(i.sequence.lock): i.sequence.lock for i in made}.items())]
    lease = model.lease()

    def work() -> list[Floats]:
        for lock in locks:
            lock.acquire()
        try:
            return _step(lease, made)
        finally:
            for lock in locks:
                lock.release()

    try:
        if sum(item.count for item in made) <= SHORT_STEP:
            return work()
        return interruptible(lease.stop, work)
    finally:
        lease.release()


def _item(i: int, item: Any) -> Item:
    if isinstance(item, Item):
        return item
    try:
        return Item(*item)
    except TypeError:
        raise wrong_type(f"items[{i}]", item, "a gqac.Item or a pair (sequence, ids)") from None


def _step(lease: Lease, items: list[Item]) -> list[Floats]:
    used = []
    try:
        pairs = []
        for item in items:
            pointer = item.sequence._handle.__enter__()
            used.append(item.sequence._handle)
            pairs.append(item.fill(pointer))
        array = (c.gqac_step_item * len(items))(*[pair[0] for pair in pairs])
        call("gqac_step", lease.pointer, len(items), array)
        return [_logits(lease, i) for i in range(len(items))]
    finally:
        for handle in used:
            handle.__exit__(None, None, None)


def _logits(lease: Lease, i: int) -> Floats:
    from ._arrays import MOST_VIEWS, view
    rows, vocabulary = ctypes.c_int64(), ctypes.c_int64()
    pointer = lib.gqac_context_logits(lease.pointer, i, ctypes.byref(rows), ctypes.byref(vocabulary))
    address = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    shape = (rows.value, vocabulary.value) if address else (0, 0)
    if address and lease.model.views < MOST_VIEWS:
        return view(address, shape, "<f4", lease.view())
    return view(address, shape, "<f4", None).copy()
