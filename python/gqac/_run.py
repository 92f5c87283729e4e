"""Stateless runs: the graph as exported, all inputs and outputs explicit."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._errors import InputError, UsageError
from ._info import tensors
from ._library import call, decode, interruptible, lib, listed, mapping, model_of, text, text_array

if TYPE_CHECKING:
    from ._arrays import Array
    from ._model import Lease, Model


def run(model: Model, inputs: Mapping[str, Any], *, outputs: Iterable[str] | None = None,
        out: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Runs the graph of a model once, without a cache of its own, and returns its outputs by name.

    inputs: by name, in any order: NumPy arrays, DLPack tensors in CPU memory (such as those of
    torch), or anything that NumPy can convert to an array. Contiguous ones are not copied. outputs:
    names of the outputs to return; None: all. out: arrays or DLPack tensors into which outputs are
    written, contiguous and of the shape of the output; they may be inputs.

    Outputs that are not in `out` are read-only arrays over the memory of gqac, which stay valid as
    long as they are referenced (while those of 4 runs of a model are referenced, further runs return
    copies). bf16 is ml_dtypes.bfloat16 where that is installed, else uint16 with its bits; i4 and u4
    have one element in each byte. Raises UsageError for a name that the graph does not have;
    InputError for a wrong type, shape or value. Ctrl-C ends the run.
    """
    lease = model_of(model).lease(stateless=True)
    names = listed("outputs", outputs) if outputs is not None else [*_types(model, "outputs")]
    call_ = _Call(model, mapping("inputs", inputs), names)
    bound: dict[str, Array] = {}
    try:
        _bind(lease, model, dict(mapping("out", out or {})), bound)
        interruptible(lease.stop, lambda: call_.run(lease))
        return call_.results(lease, bound)
    finally:
        ignored = c.gqac_diag()  # the last of them may have been refused
        for name in bound:
            lib.gqac_context_bind_output(lease.pointer, text("name", name), None, 0, ctypes.byref(ignored))


def _types(model: Model, which: str) -> dict[str, int]:
    """Element types of inputs or outputs, by name."""
    with model.stateless_program as program:
        return {decode(io.name): int(io.dtype) for io in tensors(program, which)}


def _bind(lease: Lease, model: Model, out: dict[str, Any], bound: dict[str, Array]) -> None:
    """Binds outputs to the memory of arrays, and notes in `bound` those that it may have bound."""
    from ._arrays import dtype_of, from_any
    types = _types(model, "outputs")
    for name, value in out.items():
        array = from_any(name, value, writable=True)
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise InputError(f"out['{name}'] is not contiguous or is read-only",
                             status="INVALID_INPUT")
        expected = types.get(name)
        if expected is not None and dtype_of(array, expected) != expected:
            raise InputError(f"out['{name}'] has the type {array.dtype}, which is not that of the output",
                             status="INVALID_INPUT")
        encoded = text("name", name)
        bound[name] = array
        call("gqac_context_bind_output", lease.pointer, encoded, array.ctypes.data, array.nbytes)


class _Call:
    """One run."""

    def __init__(self, model: Model, inputs: Mapping[str, Any], names: list[str]) -> None:
        from ._arrays import to_tensor
        types = _types(model, "inputs")
        made = [to_tensor(name, value, types.get(name, c.GQAC_NONE))
                for name, value in inputs.items()]
        self.kept = [kept for _, kept in made]
        self.inputs = (c.gqac_tensor * len(made))(*[tensor for tensor, _ in made])
        self.input_names, self.names = text_array("inputs", inputs), names
        self.output_names = text_array("outputs", names)
        self.outputs = (c.gqac_tensor * len(names))()

    def run(self, lease: Lease) -> None:
        call("gqac_run", lease.pointer, len(self.inputs), self.input_names, self.inputs,
             len(self.outputs), self.output_names, self.outputs)

    def results(self, lease: Lease, bound: Mapping[str, Array]) -> dict[str, Array]:
        from ._arrays import MOST_VIEWS, is_packed, numpy_type, unpack, view
        import numpy as np
        copied = lease.model.views >= MOST_VIEWS
        owner = None if copied else (lease.view(), self.kept)
        found: dict[str, Array] = {}
        for name, tensor in zip(self.names, self.outputs):
            shape = tuple(tensor.dims[:tensor.rank])
            if name in bound:
                if bound[name].shape != shape:
                    raise UsageError(f"out['{name}'] has the shape {list(bound[name].shape)}, but "
                                     f"the output has {list(shape)}", status="USAGE")
                found[name] = bound[name]
            elif is_packed(tensor.dtype):
                count = (int(np.prod(shape)) + 1) // 2
                found[name] = unpack(view(tensor.data, (count,), "u1", None), tensor.dtype, shape)
            else:
                array = view(tensor.data or 0, shape, numpy_type(tensor.dtype), owner)
                found[name] = array.copy() if copied else array
        return found
