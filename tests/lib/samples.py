"""One array per datatype, with the values that are lost first: extremes, NaN, NUL, empty elements."""
import ml_dtypes
import numpy

INF, NAN = float("inf"), float("nan")

ARRAYS = {
    "BOOL": numpy.array([True, False, False, True]),
    "UINT8": numpy.array([0, 1, 127, 255], numpy.uint8),
    "UINT16": numpy.array([0, 1, 258, 65535], numpy.uint16),
    "UINT32": numpy.array([0, 1, 16909060, 2**32 - 1], numpy.uint32),
    "UINT64": numpy.array([0, 1, 2**53 + 1, 2**64 - 1], numpy.uint64),
    "INT8": numpy.array([-128, -1, 0, 127], numpy.int8),
    "INT16": numpy.array([-2**15, -1, 0, 2**15 - 1], numpy.int16),
    "INT32": numpy.array([-2**31, -1, 0, 2**31 - 1], numpy.int32),
    "INT64": numpy.array([-2**63, -2**53 - 1, 0, 2**63 - 1], numpy.int64),
    "FP16": numpy.array([0.1, -0.0, 65504, 6e-8], numpy.float16),
    "FP32": numpy.array([0.1, -0.0, 3.4028235e38, 1e-45], numpy.float32),
    "FP64": numpy.array([0.1, -0.0, 1.7976931348623157e308, 5e-324], numpy.float64),
    "BF16": numpy.array([0.1, -0.0, 3.3895314e38, 1e-40], ml_dtypes.bfloat16),
    "BYTES": numpy.array(["a\0b".encode(), b"", "ünï ☃".encode(), b"\0"], numpy.object_),
}
NOT_FINITE = {
    "FP16": numpy.array([NAN, INF, -INF, 1], numpy.float16),
    "FP32": numpy.array([NAN, INF, -INF, 1], numpy.float32),
    "FP64": numpy.array([NAN, INF, -INF, 1], numpy.float64),
}
NOT_UTF8 = numpy.array([b"\xff\xfe", b"", b"\0\0", b"\xc3"], numpy.object_)

# Which array a model of ours takes, and through which of its tensors.
MODELS = [(f"id_{name.lower()}", "INPUT0", "OUTPUT0", False) for name in ARRAYS] + [
    (f"onnx_identity_{name.lower()}", "x", "y", True) for name in ARRAYS]


def datatype_of(model):
    return model.rpartition("_")[2].upper()


def shaped(array, batched):
    """ONNX identities batch: [1, 4]; identity models take [4]."""
    return array.reshape(1, -1) if batched else array


def as_bytes(array):
    """Elements of BYTES as bytes, whether they came as bytes or as text."""
    return [item if isinstance(item, bytes) else item.encode() for item in array.flatten()]


def assert_same_bits(got, wanted):
    assert got.shape == wanted.shape
    if wanted.dtype == numpy.object_:
        assert as_bytes(got) == as_bytes(wanted)
    else:
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes()


def assert_same_values(got, wanted):
    """For JSON, where a NaN is a NaN whatever its bits."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    assert numpy.array_equal(got, wanted, equal_nan=True)
    assert numpy.array_equal(numpy.signbit(got[got == 0]), numpy.signbit(wanted[wanted == 0]))
