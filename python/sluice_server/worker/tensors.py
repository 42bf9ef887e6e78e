"""Datatypes, and tensors between numpy and the bytes of a message."""
import struct

import numpy as np

(BOOL_, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, BF16) = range(1, 15)

NAMES = {BOOL_: "BOOL", UINT8: "UINT8", UINT16: "UINT16", UINT32: "UINT32", UINT64: "UINT64", INT8: "INT8",
         INT16: "INT16", INT32: "INT32", INT64: "INT64", FP16: "FP16", FP32: "FP32", FP64: "FP64", BYTES: "BYTES",
         BF16: "BF16"}

# in a configuration
CONFIG_NAMES = {**{"TYPE_" + name: number for number, name in NAMES.items()}, "TYPE_STRING": BYTES}

NUMPY = {BOOL_: np.bool_, UINT8: np.uint8, UINT16: np.uint16, UINT32: np.uint32, UINT64: np.uint64, INT8: np.int8,
         INT16: np.int16, INT32: np.int32, INT64: np.int64, FP16: np.float16, FP32: np.float32, FP64: np.float64,
         BYTES: np.object_}

DTYPES = {number: np.dtype(kind) for number, kind in NUMPY.items() if number != BYTES}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


def bfloat16():
    """The dtype of BF16 where the package ml_dtypes is installed, else None."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


def number_of(dtype):
    """The datatype of an array; None: none."""
    number = NUMBERS.get(dtype)
    if number is None and dtype.kind in "OSU":
        return BYTES
    if number is None and dtype.name == "bfloat16":
        return BF16
    return number


def elements_to_bytes(array):
    """The elements of BYTES: each a length of 4 bytes, then its bytes."""
    parts = []
    pack = struct.Struct("<I").pack
    for item in array.ravel():
        if isinstance(item, str):
            item = item.encode("utf-8")
        elif not isinstance(item, (bytes, bytearray, memoryview)):
            item = str(item).encode("utf-8")
        parts.append(pack(len(item)))
        parts.append(item)
    return b"".join(parts)


def bytes_to_elements(data, n):
    """An array of `n` bytes objects."""
    elements = np.empty(n, dtype=np.object_)
    at = 0
    unpack = struct.Struct("<I").unpack_from
    for i in range(n):
        length = unpack(data, at)[0]
        at += 4
        elements[i] = bytes(data[at:at + length])
        at += length
    return elements


def convert(array, datatype, wanted):
    """The array as the wanted datatype, where it is one of the same kind and holds the values; else None. numpy sums
    INT32 to INT64, and computes with FP64."""
    if datatype not in DTYPES or wanted not in DTYPES or not np.can_cast(DTYPES[datatype], DTYPES[wanted], "same_kind"):
        return None
    with np.errstate(over="ignore"):
        converted = array.astype(DTYPES[wanted])
    if converted.dtype.kind in "iu" and not np.array_equal(converted, array):
        return None
    if array.dtype.kind == "f" and not np.array_equal(np.isfinite(converted), np.isfinite(array)):
        return None
    return converted


def count(dims):
    n = 1
    for size in dims:
        n *= size
    return n


def from_memory(datatype, dims, memory, offset, n_bytes):
    """The array of a tensor at `offset` of `memory`: a view, but for BYTES. BF16 without its dtype: of UINT16."""
    if datatype == BYTES:
        return bytes_to_elements(memory[offset:offset + n_bytes], count(dims)).reshape(dims)
    dtype = DTYPES.get(datatype) or bfloat16() or DTYPES[UINT16]
    if n_bytes == 0:
        return np.empty(dims, dtype=dtype)
    return np.frombuffer(memory, dtype=dtype, count=n_bytes // dtype.itemsize, offset=offset).reshape(dims)
