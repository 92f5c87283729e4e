"""What a model is, and what a decode step of it costs."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from . import _declarations as c
from ._library import Handle, call, decode, lib, structs


class Tensor(NamedTuple):
    """An input or output of the graph. shape: "[batch_size,sequence_length]"; rank -1: unknown."""

    name: str
    dtype: str
    rank: int
    shape: str


class Pair(NamedTuple):
    """A past/present pair. rows 0: one row for each token; else a state [heads, rows, head_size].
    window: number of keys of a sliding window; 0: all."""

    past: str
    present: str
    dtype: str
    heads: int
    head_size: int
    rows: int
    window: int


class Node(NamedTuple):
    """A node whose results depend on other tokens of the same call."""

    op: str
    name: str


class Info(NamedTuple):
    """What a model is. vocabulary 0: not fixed; max_tokens: positions, 2**63 - 1: unlimited;
    embedding_size 0: the model takes ids; mixing: empty if the model is split-safe; level: the
    instruction set, "" if the target has only one; memory_used: bytes of contexts and caches."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    kv_pairs: list[Pair]
    mixing: list[Node]
    vocabulary: int
    embedding_size: int
    max_tokens: int
    last_logits: bool
    weight_bytes: int
    memory_used: int
    profile: str
    level: str

    @property
    def split_safe(self) -> bool:
        """Results do not depend on how tokens are split into calls."""
        return not self.mixing


class Kernel(NamedTuple):
    """One kernel of a decode step, with the minimum number of bytes that it has to move."""

    node: str
    op: str
    kernel: str
    fused: list[str]
    dtype: str
    shape: str
    weight_bytes: int
    cache_bytes: int
    input_bytes: int
    output_bytes: int
    barriers: int


class Plan(NamedTuple):
    """The kernels of a decode step after `past` cached tokens, and their sums."""

    past: int
    steps: list[Kernel]
    total: Kernel


class Score(NamedTuple):
    """nll: negative log-likelihood in nats, of all tokens but the first; log_probabilities: of each
    of them, in order."""

    tokens: int
    nll: float
    perplexity: float
    log_probabilities: list[float]


def _list(function: str, program: Any, kind: Any) -> list[Any]:
    """A list that a function sets."""
    first = ctypes.POINTER(kind)()
    return structs(first, getattr(lib, function)(program, ctypes.byref(first)), kind)


def dtype_name(dtype: int) -> str:
    """"f32", "i64", ..."""
    return decode(lib.gqac_dtype_name(dtype))


def tensors(program: Any, which: str) -> list[Any]:
    """gqac_io of "inputs" or "outputs"."""
    return _list(f"gqac_program_{which}", program, c.gqac_io)


def _tensors(program: Any, which: str) -> list[Tensor]:
    return [Tensor(decode(io.name), dtype_name(io.dtype), io.rank, decode(io.shape))
            for io in tensors(program, which)]


def read_info(handle: Handle) -> Info:
    """The properties of a program."""
    with handle as program:
        pairs = [Pair(decode(p.past), decode(p.present), dtype_name(p.dtype), p.heads, p.head_size,
                      p.rows, p.window)
                 for p in _list("gqac_program_kv_pairs", program, c.gqac_kv_pair)]
        mixing = [Node(decode(m.op), decode(m.node))
                  for m in _list("gqac_program_mixing", program, c.gqac_mixing)]
        numbers = {name: getattr(lib, f"gqac_program_{name}")(program)
                   for name in ("vocabulary", "embedding_size", "max_tokens", "last_logits",
                                "weight_bytes", "memory_used")}
        return Info(_tensors(program, "inputs"), _tensors(program, "outputs"), pairs, mixing,
                    profile=decode(lib.gqac_program_profile(program)),
                    level=decode(lib.gqac_program_level(program)), **numbers)


def _kernel(step: Any) -> Kernel:
    return Kernel(decode(step.node), decode(step.op), decode(step.kernel),
                  [decode(step.fused[i]) for i in range(step.n_fused)] if step.fused else [],
                  dtype_name(step.dtype),
                  decode(step.shape), step.weight_bytes, step.cache_bytes, step.input_bytes,
                  step.output_bytes, step.barriers)


def read_plan(handle: Handle, past: int) -> Plan:
    """The plan of a decode step."""
    made = ctypes.POINTER(c.gqac_plan)()
    with handle as program:
        call("gqac_plan_open", program, past, ctypes.byref(made))
        plan = made.contents
        try:
            steps = [_kernel(step) for step in structs(plan.steps, plan.n_steps, c.gqac_plan_step)]
            return Plan(plan.past, steps, _kernel(plan.total))
        finally:
            lib.gqac_plan_free(made)


