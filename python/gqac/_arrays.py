"""Tensors: NumPy arrays and DLPack tensors to gqac_tensor and back. NumPy is imported on first use."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._errors import InputError
from ._library import decode, lib

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Floats = npt.NDArray[np.float32]

MOST_VIEWS = 4  # arrays of results of one model that are views at the same time
NUMPY_NAMES = {"bf16": "bfloat16", "i4": "int4", "u4": "uint4"}  # types of ml_dtypes


def _extension_type(name: str) -> Any:
    """A type of ml_dtypes, or None where it is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return getattr(ml_dtypes, NUMPY_NAMES[name])


def numpy_type(dtype: int) -> Any:
    """The NumPy type of an element type. bf16, i4 and u4 are those of ml_dtypes; without it bf16 is
    uint16 (its bits), i4 is int8 and u4 uint8."""
    import numpy as np
    name = decode(lib.gqac_dtype_name(dtype))
    if name in NUMPY_NAMES:
        fallback = {"bf16": np.uint16, "i4": np.int8, "u4": np.uint8}[name]
        return np.dtype(_extension_type(name) or fallback)
    return np.dtype(decode(lib.gqac_dtype_npy(dtype)))


def dtype_of(array: Array, expected: int) -> int:
    """The element type of an array; `expected`, the graph's, decides where NumPy has no such type.
    GQAC_NONE: there is none."""
    name = {v: k for k, v in NUMPY_NAMES.items()}.get(array.dtype.name, "")
    if name:
        return int(lib.gqac_dtype_from_name(name.encode()))
    if expected != c.GQAC_NONE and array.dtype == numpy_type(expected):
        return expected
    if expected in (c.GQAC_I4, c.GQAC_U4) and array.dtype.str in ("|i1", "|u1"):
        return expected
    if expected == c.GQAC_BF16 and array.dtype.str in ("|V2", "<u2"):
        return expected
    if array.dtype.str == "|V2" or not array.dtype.isnative:
        return int(c.GQAC_NONE)
    for dtype in range(1, c.GQAC_DTYPE_COUNT):
        if decode(lib.gqac_dtype_npy(dtype)) == array.dtype.str and dtype not in (
                c.GQAC_I4, c.GQAC_U4):
            return dtype
    return int(c.GQAC_NONE)


def is_packed(dtype: int) -> bool:
    """Whether two elements share a byte."""
    return int(lib.gqac_dtype_bits(dtype)) == 4


def pack(array: Array) -> Array:
    """Two elements of 4 bits in a byte, low nibble first."""
    import numpy as np
    flat = np.ascontiguousarray(array).reshape(-1).astype(np.int8).view(np.uint8) & 15
    flat = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
    packed: Array = flat[0::2] | (flat[1::2] << 4)
    return packed


def unpack(packed: Array, dtype: int, shape: tuple[int, ...]) -> Array:
    """The other direction."""
    import numpy as np
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)[:int(np.prod(shape))]
    if dtype == c.GQAC_I4:
        nibbles = ((nibbles ^ 8).astype(np.int8) - 8).astype(np.int8)
    unpacked: Array = nibbles.astype(numpy_type(dtype)).reshape(shape)
    return unpacked


def to_tensor(name: str, value: Any, expected: int = c.GQAC_NONE) -> tuple[Any, Any]:
    """A gqac_tensor of a value, and what must live as long as it is used. A contiguous array in the
    memory of the CPU is not copied."""
    import numpy as np
    array = from_any(name, value)
    dtype = dtype_of(array, expected)
    if dtype == c.GQAC_NONE:
        raise InputError(f"the tensor '{name}' has the type {array.dtype}, which gqac does not support",
                         status="INVALID_INPUT")
    shape = array.shape
    if array.ndim > 8:
        raise InputError(f"the tensor '{name}' has {array.ndim} dimensions; the maximum is 8",
                         status="INVALID_INPUT")
    array = pack(array) if is_packed(dtype) else np.ascontiguousarray(array)
    tensor = c.gqac_tensor(dtype=dtype, rank=len(shape), data=array.ctypes.data)
    for i, n in enumerate(shape):
        tensor.dims[i] = n
    return tensor, (array, value)


class Memory:
    """Memory of the library as an array; `owner` keeps it valid."""

    def __init__(self, address: int, shape: tuple[int, ...], kind: Any, owner: Any,
                 readonly: bool = True) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": shape, "data": (address, readonly),
                                    "typestr": kind.str}


def view(address: int, shape: tuple[int, ...], kind: Any, owner: Any) -> Array:
    """A read-only array over memory that `owner` keeps valid."""
    import numpy as np
    kind = np.dtype(kind)
    if not address or 0 in shape:
        return np.zeros(shape, kind)
    bits = np.dtype((np.void, kind.itemsize)) if kind.kind == "V" else kind
    array: Array = np.asarray(Memory(address, shape, bits, owner))
    return array if array.dtype == kind else array.view(kind)


# ---- DLPack ------------------------------------------------------------------------------------------

class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _Kind(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("kind", _Kind), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CODES = {0: "i", 1: "u", 2: "f", 6: "b"}
BFLOAT = 4


def _kind_of(name: str, kind: Any) -> Any:
    import numpy as np
    if kind.code == BFLOAT and kind.bits == 16 and kind.lanes == 1:
        return numpy_type(c.GQAC_BF16)
    if kind.lanes != 1 or kind.code not in CODES or kind.bits % 8:
        raise InputError(f"the tensor '{name}' has an element type of DLPack that gqac does not support",
                         status="INVALID_INPUT")
    code = CODES[kind.code]
    return np.dtype("?" if code == "b" else f"{code}{kind.bits // 8}")


def from_any(name: str, value: Any, writable: bool = False) -> Array:
    """An array of a value: an array itself, a DLPack tensor without a copy, or what NumPy makes of
    it."""
    import numpy as np
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    if value.__dlpack_device__()[0] not in CPU_DEVICES:
        raise InputError(f"the tensor '{name}' is not in the memory of the CPU", status="INVALID_INPUT",
                         hint="copy it first: tensor.cpu()")
    capsule = value.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    kind = _kind_of(name, tensor.kind)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    bits = np.dtype((np.void, kind.itemsize)) if kind.kind == "V" else kind
    if not tensor.data or 0 in shape:
        return np.zeros(shape, kind)
    memory = Memory(tensor.data + tensor.offset, shape, bits, (capsule, value), not writable)
    if tensor.strides:
        memory.__array_interface__["strides"] = tuple(
            tensor.strides[i] * kind.itemsize for i in range(tensor.ndim))
    array: Array = np.asarray(memory)
    return array if array.dtype == kind else array.view(kind)
