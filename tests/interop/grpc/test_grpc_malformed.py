"""gRPC against those who don't keep to it, part one: calls and messages. Everything that HTTP's bad input
has a counterpart of, messages that are none, and prefixes that lie; each with the status and the words
that come back, to ModelInfer and as one of many on a stream. HTTP/2 itself is test_grpc_http2.py's.
After each test a good request is answered and the server's own numbers are back to nothing."""
import gzip
import random
import struct
import zlib

import pytest
from google.protobuf.message import DecodeError

from lib import h2
from lib.grpc_live import (EXHAUSTED, GOOD, INFER, INTERNAL, INVALID, NOT_FOUND, OK, SERVICE, STREAM,
                           UNIMPLEMENTED, Live, bytes_field, floats, number_field, parse_answer, proto,
                           request, tag, tensor, varint)

pytestmark = pytest.mark.tsan

MAX_BODY = 4 << 20
FAR = 1 << 63


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories):
    live = Live(tmp_path_factory.mktemp("abuse"), repositories("default"), "--max-body-size",
                MAX_BODY, "--max-tensor-elements", 1 << 28)
    with live.server:
        yield live


@pytest.fixture
def live(shared):
    assert shared.server.process.poll() is None, shared.server.log_text()
    yield shared
    shared.check_unharmed()


@pytest.fixture
def connection(live):
    with live.connect() as made:
        yield made
        live.check_good(made)  # the connection has outlived it


def refused(connection, data, status, *words, path=INFER, more=()):
    ended = connection.call(path, data, more=more)
    assert ended.status == status and not ended.data, (data[:100], str(ended))
    for word in words:
        assert word in ended.text, (word, ended.text)


# ---- requests that say something wrong ------------------------------------------------------------

def params(**values):
    return {key: proto.InferParameter(**value) for key, value in values.items()}


def texts(*elements):
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def typed(datatype, shape, **contents):
    return request(f"id_{datatype.lower()}", [tensor("INPUT0", datatype, shape, contents=contents)], ())


def shaped(*dims):
    return request(inputs=[tensor(shape=dims)])


def of_bytes(n, data):
    return request("id_bytes", [tensor("INPUT0", "BYTES", [n])], [data])


TWO = [tensor("INPUT0"), tensor("INPUT1", "INT32")]
ONE_DEEP = "raw_input_contents: expected 1 entries"

REQUESTS = [
    # models, versions, names
    ("no model", request(""), NOT_FOUND, ""),
    ("an unknown model", request("nope"), NOT_FOUND, "nope"),
    ("a model that failed to exist", request("../id_fp32"), NOT_FOUND, ""),
    ("a name with dots", request(".."), NOT_FOUND, ""),
    ("a name in percent", request("%2e%2e"), NOT_FOUND, ""),
    ("a name with a slash", request("id_fp32/1"), NOT_FOUND, ""),
    ("a name with NUL", request("id_fp32\0"), NOT_FOUND, ""),
    ("a name of 64 kB", request("n" * 65536), NOT_FOUND, ""),
    ("an unknown version", request(model_version="7"), NOT_FOUND, "7"),
    ("a version below nothing", request(model_version="-1"), NOT_FOUND, "-1"),
    ("a version that is no number", request(model_version="one"), NOT_FOUND, "one"),
    ("a version with a plus", request(model_version="+1"), NOT_FOUND, "+1"),
    ("a version with a zero before it", request(model_version="01"), NOT_FOUND, "01"),
    ("a version of 2^63", request(model_version=str(FAR)), NOT_FOUND, str(FAR)),
    # inputs and outputs
    ("no inputs", request(inputs=[], raw=()), INVALID, "INPUT0"),
    ("a missing input", request("id_two", TWO[:1]), INVALID, "INPUT1"),
    ("an unknown input", request(inputs=[tensor("NOPE")]), INVALID, "NOPE"),
    ("an input without a name", request(inputs=[tensor("")]), INVALID, "inputs[0].name"),
    ("an input's name with NUL", request(inputs=[tensor("INPUT0\0")]), INVALID, "INPUT0"),
    ("an input's name of 64 kB", request(inputs=[tensor("I" * 65536)]), INVALID, "III"),
    ("an input twice", request(inputs=[tensor(), tensor()], raw=[floats(1)] * 2), INVALID, "INPUT0"),
    ("an unknown output", request(outputs=[{"name": "NOPE"}]), INVALID, "NOPE"),
    ("an output without a name", request(outputs=[{}]), INVALID, ""),
    ("an output twice", request(outputs=[{"name": "OUTPUT0"}] * 2), INVALID, "OUTPUT0"),
    ("100,000 inputs", request(inputs=[tensor("a")] * 100000, raw=()), INVALID, ""),
    ("100,000 outputs", request(outputs=[{"name": "OUTPUT0"}] * 100000), INVALID, "OUTPUT0"),
    ("100,000 entries for one input", request(raw=[b""] * 100000), INVALID, "got 100000"),
    ("an id over 1 MiB", request(id="i" * ((1 << 20) + 1)), INVALID, "id: expected at most 1048576 bytes"),
    ("10,001 parameters", request(parameters=params(**{f"p{n}": {"int64_param": n} for n in range(10001)})), INVALID,
     "parameters: expected at most 10000"),
    ("a name of 1 MB", request("n" * 1000000), NOT_FOUND, "unknown model"),
    # datatypes
    ("no datatype", request(inputs=[tensor(datatype="")]), INVALID, "inputs[0].datatype"),
    ("a datatype that is none", request(inputs=[tensor(datatype="FP31")]), INVALID, "FP31"),
    ("a datatype in small letters", request(inputs=[tensor(datatype="fp32")]), INVALID, "fp32"),
    ("a datatype of the configuration", request(inputs=[tensor(datatype="TYPE_FP32")]), INVALID,
     "TYPE_FP32"),
    ("a datatype with NUL", request(inputs=[tensor(datatype="FP32\0")]), INVALID, "inputs[0].datatype"),
    ("another model's datatype", request(inputs=[tensor(datatype="INT32")]), INVALID, "INT32"),
    # shapes
    ("a dimension of -1", shaped(-1), INVALID, "inputs[0].shape[0]"),
    ("the least dimension", shaped(-FAR), INVALID, "inputs[0].shape[0]"),
    ("2 of -1", shaped(-1, -1), INVALID, "inputs[0].shape[0]"),
    ("a product of 2^31", shaped(1 << 31), EXHAUSTED, "--max-tensor-elements"),
    ("a product of 2^32", shaped(1 << 16, 1 << 16), EXHAUSTED, "--max-tensor-elements"),
    ("a product of 2^63", shaped(1 << 32, 1 << 31), INVALID, "63 bits"),
    ("a product of 2^64 + 4", shaped((1 << 62) + 1, 4), INVALID, "63 bits"),
    ("a product of 2^64", shaped(1 << 32, 1 << 32), INVALID, "63 bits"),
    ("the largest dimension", shaped(FAR - 1), EXHAUSTED, "--max-tensor-elements"),
    ("65 dimensions", shaped(*[1] * 65), INVALID, "64 dimensions"),
    ("100,000 dimensions", shaped(*[1] * 100000), INVALID, "64 dimensions"),
    ("no dimension", shaped(), INVALID, ""),
    ("a dimension too many", shaped(1, 1), INVALID, "[1,1]"),
    ("a shape that is not the model's", request("id_fixed", [tensor(shape=[4])], [floats(1, 2, 3, 4)]),
     INVALID, "[2,2]"),
    ("a batch over the limit", request("id_batch", [tensor(shape=[1000, 4])], [bytes(16000)]), INVALID,
     ""),
    # bytes of the wrong size or count
    ("a byte short", request(raw=[floats(1)[:-1]]), INVALID, "3"),
    ("a byte long", request(raw=[floats(1) + b"\0"]), INVALID, "5"),
    ("an element short", request(inputs=[tensor(shape=[2])]), INVALID, "8"),
    ("an element long", request(raw=[floats(1, 2)]), INVALID, "8"),
    ("bytes for an empty tensor", request(inputs=[tensor(shape=[0])]), INVALID, "4"),
    ("no bytes", request(raw=[b""]), INVALID, ""),
    ("no data at all", request(raw=()), INVALID, "inputs[0] has no data"),
    ("an entry too few", request("id_two", TWO), INVALID, "expected 2 entries"),
    ("an entry too many", request(raw=[floats(1)] * 2), INVALID, ONE_DEEP),
    ("an entry too many, empty", request(raw=[floats(1), b""]), INVALID, ONE_DEEP),
    ("entries for no inputs", request(inputs=[]), INVALID, "expected 0 entries"),
    ("raw and typed", request(inputs=[tensor(contents={"fp32_contents": [1]})]), INVALID,
     "inputs[0].contents"),
    ("raw and typed for another", request("id_two", [TWO[0], tensor(
        "INPUT1", "INT32", contents={"int_contents": [1]})]), INVALID, "inputs[1].contents"),
    # BOOL and BYTES, byte by byte
    ("a BOOL of 2", request("id_bool", [tensor("INPUT0", "BOOL", [3])], [b"\0\1\2"]), INVALID, "2"),
    ("a BOOL of 255", request("id_bool", [tensor("INPUT0", "BOOL")], [b"\xff"]), INVALID, "255"),
    ("BYTES past the end", of_bytes(1, b"\4\0\0\0abc"), INVALID, "INPUT0"),
    ("BYTES of 0xFFFFFFFF", of_bytes(1, b"\xff\xff\xff\xffabc"), INVALID, "INPUT0"),
    ("BYTES of 0x80000000", of_bytes(1, b"\0\0\0\x80abc"), INVALID, "INPUT0"),
    ("BYTES back to itself", of_bytes(1, b"\xfc\xff\xff\xffabcd"), INVALID, "INPUT0"),
    ("BYTES with a cut length", of_bytes(2, texts(b"a") + b"\0\0\0"), INVALID, "INPUT0"),
    ("BYTES: an element for two", of_bytes(2, texts(b"a")), INVALID, "INPUT0"),
    ("BYTES: two for one", of_bytes(1, texts(b"a", b"b")), INVALID, "INPUT0"),
    ("BYTES: one for none", of_bytes(0, texts(b"")), INVALID, "INPUT0"),
    ("BYTES: a byte behind", of_bytes(1, texts(b"a") + b"\0"), INVALID, "INPUT0"),
    ("BYTES: lengths in big-endian", of_bytes(1, b"\0\0\0\3abc"), INVALID, "INPUT0"),
    # typed contents
    ("typed, one short", typed("FP32", [2], fp32_contents=[1]), INVALID, "Expected 8, got 4"),
    ("typed, one long", typed("FP32", [1], fp32_contents=[1, 2]), INVALID, "got 8"),
    ("typed, for nothing", typed("FP32", [0], fp32_contents=[1]), INVALID, "Expected 0, got 4"),
    ("typed, in another's list", typed("FP32", [1], fp64_contents=[1]), INVALID, "contents"),
    ("typed, in two lists", typed("FP32", [1], fp32_contents=[1], int_contents=[1]), INVALID, "contents"),
    ("typed, FP16", typed("FP16", [1], fp32_contents=[1]), INVALID, "FP16"),
    ("typed, BF16", typed("BF16", [1], fp32_contents=[1]), INVALID, "BF16"),
    ("INT8 of 128", typed("INT8", [1], int_contents=[128]), INVALID, "128"),
    ("INT8 of -129", typed("INT8", [1], int_contents=[-129]), INVALID, "-129"),
    ("INT16 of 2^15", typed("INT16", [1], int_contents=[1 << 15]), INVALID, "32768"),
    ("UINT8 of 256", typed("UINT8", [1], uint_contents=[256]), INVALID, "256"),
    ("UINT16 of 2^16", typed("UINT16", [1], uint_contents=[1 << 16]), INVALID, "65536"),
    # parameters
    ("a parameter without a value", request(parameters=params(a={})), INVALID, "no value"),
    ("an input's", request(inputs=[tensor(parameters=params(a={}))]), INVALID, "inputs[0].parameters"),
    ("an output's", request(outputs=[{"name": "OUTPUT0", "parameters": params(a={})}]), INVALID,
     "outputs[0].parameters"),
    ("a reserved name", request(parameters=params(triton_x={"bool_param": True})), INVALID, "triton_"),
    ("shared memory", request(inputs=[tensor(parameters=params(
        shared_memory_region={"string_param": "r"}))], raw=()), INVALID, "shared_memory_byte_size"),
    ("shared memory without a region", request(inputs=[tensor(parameters=params(
        shared_memory_byte_size={"int64_param": 4}))], raw=()), INVALID, "shared_memory_region"),
    ("shared memory of a negative size", request(inputs=[tensor(parameters=params(
        shared_memory_region={"string_param": "r"}, shared_memory_byte_size={"int64_param": -4}))],
        raw=()), INVALID, "shared_memory_byte_size"),
    ("shared memory and raw bytes", request(inputs=[tensor(parameters=params(
        shared_memory_region={"string_param": "r"}, shared_memory_byte_size={"int64_param": 4}))]),
     INVALID, "expected 0 entries"),
    ("shared memory that nobody registered", request(inputs=[tensor(parameters=params(
        shared_memory_region={"string_param": "r"}, shared_memory_byte_size={"int64_param": 4}))],
        raw=()), NOT_FOUND, "no such shared memory region"),
    ("classification into shared memory", request(outputs=[{"name": "OUTPUT0", "parameters": params(
        classification={"int64_param": 1}, shared_memory_region={"string_param": "r"},
        shared_memory_byte_size={"int64_param": 4})}]), INVALID, "either classification"),
    ("no class", request(outputs=[{"name": "OUTPUT0", "parameters": params(
        classification={"int64_param": 0})}]), INVALID, "classification"),
    ("fewer classes", request(outputs=[{"name": "OUTPUT0", "parameters": params(
        classification={"int64_param": -1})}]), INVALID, "classification"),
    ("classes in words", request(outputs=[{"name": "OUTPUT0", "parameters": params(
        classification={"string_param": "3"})}]), INVALID, "classification"),
    ("more classes than can be", request(outputs=[{"name": "OUTPUT0", "parameters": params(
        classification={"uint64_param": FAR})}]), INVALID, "classification"),
    # what fails further in
    ("a model that fails", request("id_failing"), INTERNAL, "out of ink"),
]


@pytest.mark.parametrize("data, status, words", [row[1:] for row in REQUESTS],
                         ids=[row[0] for row in REQUESTS])
def test_infer_invalid_request_is_refused(connection, data, status, words):
    """Alone, and on a stream, where those before and after it are answered."""
    refused(connection, data, status, words)
    ended = connection.call(STREAM, GOOD, data, GOOD)
    answers = [proto.ModelStreamInferResponse.FromString(item) for item in ended.messages()]
    assert ended.status == OK and len(answers) == 3, str(ended)
    assert [bool(item.error_message) for item in answers] == [False, True, False]
    assert words in answers[1].error_message
    assert answers[2].infer_response.raw_output_contents[0] == floats(1)


def test_infer_unusual_request_is_accepted(connection):
    """An empty tensor, a text with NUL, an id of 64 kB, unknown parameters, versions named and not."""
    for data in (request(inputs=[tensor(shape=[0])], raw=[b""]), of_bytes(2, texts(b"a\0b", b"")),
                 request(id="i" * 65536), request(id="a\0b"), request(model_version="1"),
                 request(parameters=params(own={"double_param": float("nan")})),
                 request(parameters=params(**{f"p{n}": {"int64_param": n} for n in range(1000)})),
                 typed("FP32", [0]), typed("INT8", [2], int_contents=[-128, 127]),
                 request("id_two", TWO, [floats(1), b"\1\0\0\0"])):
        ended = connection.call(INFER, data)
        assert ended.status == OK, str(ended)
    assert parse_answer(connection.call(INFER, request(id="a\0b")).messages()[0]).id == "a\0b"


# ---- messages that are none -----------------------------------------------------------------------

NOT_TEXT = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80")
IN_INPUT = bytes_field(1, b"INPUT0") + bytes_field(2, b"FP32") + bytes_field(3, b"\1")
BEFORE = bytes_field(1, b"id_fp32")
AFTER = bytes_field(7, floats(1))
DEEP = 100000


def with_input(data):
    return BEFORE + bytes_field(5, data) + AFTER


def nested(levels, number):
    """Messages in messages, the innermost first."""
    heads, n_bytes = [], 0
    for _ in range(levels):
        heads.append(tag(number, 2) + varint(n_bytes))
        n_bytes += len(heads[-1])
    return b"".join(reversed(heads))


def groups(levels, number):
    return tag(number, 3) * levels + tag(number, 4) * levels


@pytest.mark.parametrize("text", NOT_TEXT)
def test_infer_non_utf8_text_is_refused(connection, text):
    for where, data in (("model_name", bytes_field(1, text)),
                        ("model_version", GOOD + bytes_field(2, text)),
                        ("id", GOOD + bytes_field(3, text)),
                        ("inputs[0].name", with_input(IN_INPUT + bytes_field(1, text))),
                        ("inputs[0].datatype", with_input(IN_INPUT + bytes_field(2, text))),
                        ("outputs[0].name", GOOD + bytes_field(6, bytes_field(1, text))),
                        ("parameters", GOOD + bytes_field(4, bytes_field(1, text)
                                                          + bytes_field(2, number_field(1, 1)))),
                        ("parameters", GOOD + bytes_field(4, bytes_field(1, b"key") + bytes_field(
                            2, bytes_field(3, text))))):
        refused(connection, data, INVALID, where)


def wrong_kinds(number):
    """A field in every way that one can be on the wire."""
    return {0: number_field(number, 1), 1: tag(number, 1) + bytes(8), 2: bytes_field(number, b"\1\2"),
            3: tag(number, 3) + tag(number, 4), 5: tag(number, 5) + bytes(4)}


PLACES = {  # what each field is in the message, and what may come of its every kind
    "of the request": lambda data: BEFORE + bytes_field(5, IN_INPUT) + AFTER + data,
    "of an input": lambda data: with_input(IN_INPUT + data),
    "of an output": lambda data: GOOD + bytes_field(6, bytes_field(1, b"OUTPUT0") + data),
    "of a parameter": lambda data: GOOD + bytes_field(4, bytes_field(1, b"key") + bytes_field(
        2, number_field(1, 1)) + data),
    "of a value": lambda data: GOOD + bytes_field(4, bytes_field(1, b"key") + bytes_field(
        2, number_field(1, 1) + data)),
    "of contents": lambda data: BEFORE + bytes_field(5, IN_INPUT + bytes_field(
        5, tag(6, 5) + floats(1) + data)),
}


@pytest.mark.parametrize("place", PLACES)
def test_protobuf_each_field_with_each_wire_type(connection, place):
    """An answer or a refusal, never anything else; unknown fields are passed over."""
    for number in (*range(1, 10), 100, 19000, (1 << 29) - 1):
        for kind, data in wrong_kinds(number).items():
            ended = connection.call(INFER, PLACES[place](data))
            assert ended.status in (OK, INVALID, NOT_FOUND), (number, kind, str(ended))
            if number > 8:
                assert ended.status == OK, (number, kind, str(ended))


def test_protobuf_unknown_wire_type_is_refused(connection):
    for data in (tag(1, 6), tag(1, 7), tag(9, 6) + bytes(8), b"\0", b"\0\0", tag(0, 2) + b"\0",
                 tag(9, 4), tag(9, 3), tag(9, 3) + tag(8, 4), varint(1 << 32 | 1 << 3),
                 b"\x80" * 9 + b"\1", b"\x80" * 10 + b"\1", b"\xff" * 11, tag(9, 0) + b"\xff" * 11):
        refused(connection, GOOD + data, INVALID, "ModelInferRequest")


@pytest.mark.parametrize("n_bytes", [1, 100, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, FAR - 1,
                                     FAR, (1 << 64) - 1])
def test_protobuf_length_past_end_is_refused(connection, n_bytes):
    for number in (1, 4, 5, 6, 7, 100):
        refused(connection, GOOD + tag(number, 2) + varint(n_bytes), INVALID, "ModelInferRequest")
    refused(connection, with_input(IN_INPUT + tag(3, 2) + varint(n_bytes)), INVALID, "")
    refused(connection, with_input(IN_INPUT + tag(5, 2) + varint(n_bytes)), INVALID, "")


def test_protobuf_field_order_and_repetition(connection):
    """Of a field that is repeated though it is single the last counts; lists may be in parts."""
    fields = [BEFORE, bytes_field(3, b"id"), bytes_field(5, IN_INPUT), AFTER,
              bytes_field(6, bytes_field(1, b"OUTPUT0")), bytes_field(100, b"unknown")]
    rng = random.Random(1)
    for _ in range(50):
        rng.shuffle(fields)
        answer = parse_answer(connection.call(INFER, b"".join(fields)).messages()[0])
        assert answer.id == "id" and answer.raw_output_contents[0] == floats(1)
    again = bytes_field(1, b"nope") + bytes_field(3, b"first") + GOOD + bytes_field(3, b"last")
    assert parse_answer(connection.call(INFER, again).messages()[0]).id == "last"
    parts = bytes_field(1, b"NOPE") + bytes_field(2, b"INT8") + IN_INPUT
    assert connection.call(INFER, with_input(parts)).status == OK
    refused(connection, with_input(IN_INPUT + number_field(3, 1)), INVALID, "[1,1]")


@pytest.mark.parametrize("number", [1, 3, 4, 5, 6, 7, 100])
def test_protobuf_deep_nesting(connection, number):
    """Messages in messages are bytes to who doesn't look for them; groups are refused."""
    levels = nested(DEEP, number)
    assert len(levels) > 2 * DEEP
    ended = connection.call(INFER, GOOD + bytes_field(number, levels))
    assert ended.status == (OK if number == 100 else ended.status)
    assert ended.status in (OK, INVALID, NOT_FOUND), str(ended)
    refused(connection, GOOD + groups(DEEP, number), INVALID, "ModelInferRequest")
    refused(connection, with_input(IN_INPUT + groups(DEEP, number)), INVALID, "InferInputTensor")
    refused(connection, GOOD + tag(number, 3) * DEEP, INVALID, "ModelInferRequest")


WIDE = request("id_two", TWO, [floats(1), b"\1\0\0\0"], id="an id", outputs=[{"name": "OUTPUT1"}],
               parameters=params(a={"bool_param": True}, b={"string_param": "text"}))


def check_like_protobuf(connection, data):
    """What protobuf's own parser refuses is refused; anything else is answered in one way or another.
    (A field of the wrong kind is unknown to protobuf and refused by us.)"""
    ended = connection.call(INFER, data)
    assert ended.status in (OK, INVALID, NOT_FOUND, UNIMPLEMENTED, EXHAUSTED), (data.hex(), str(ended))
    try:
        proto.ModelInferRequest.FromString(data)
    except DecodeError:
        assert ended.status == INVALID, (data.hex(), str(ended))


def test_protobuf_each_prefix(connection):
    for n_bytes in range(len(WIDE)):
        check_like_protobuf(connection, WIDE[:n_bytes])
    assert connection.call(INFER, WIDE).status == OK


def test_protobuf_each_byte_changed(connection):
    for at in range(len(WIDE)):
        for change in (1, 2, 4, 8, 0x40, 0x80, 0xff):
            check_like_protobuf(connection, WIDE[:at] + bytes([WIDE[at] ^ change]) + WIDE[at + 1:])


def test_protobuf_random_bytes(connection):
    rng = random.Random(2)
    for _ in range(2000):
        check_like_protobuf(connection, rng.randbytes(rng.choice((1, 2, 5, 20, 100, 1000))))
    refused(connection, b"\xff" * (MAX_BODY // 2), INVALID, "ModelInferRequest")
    refused(connection, b'{"inputs":[]}', INVALID, "ModelInferRequest")


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics",
                                    "ServerLive", "ServerMetadata"])
def test_other_methods_random_bytes_are_refused(connection, method):
    """Those without a field have nothing to refuse but bytes that are no fields."""
    for data in (b"\xff", b"\x0a\x05abc", tag(1, 3) * DEEP, tag(9, 2) + varint(FAR)):
        refused(connection, data, INVALID, path=SERVICE + method.encode())
    if not method.startswith("Server"):
        refused(connection, bytes_field(1, b"\xff"), INVALID, path=SERVICE + method.encode())
        unknown = INVALID if method == "ModelStatistics" else NOT_FOUND  # as the reference has it
        if method != "ModelReady":  # of which an unknown model is not ready
            refused(connection, bytes_field(1, b"nope"), unknown, "nope", path=SERVICE + method.encode())


def test_health_and_reflection_random_bytes_are_refused(connection):
    for path in (b"/grpc.health.v1.Health/Check", b"/grpc.health.v1.Health/Watch",
                 b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                 b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"):
        for data in (b"\xff", tag(1, 3) * DEEP, bytes_field(1, b"\xff")):
            refused(connection, data, INVALID, path=path)


# ---- prefixes and ends ----------------------------------------------------------------------------

def answer_to(connection, data, path=INFER, more=()):
    """Sends bytes as they are. Returns: the Stream when it is over."""
    stream = connection.begin(path, *more)
    connection.send_data(stream, data, end=True)
    return connection.answer(stream)


@pytest.mark.parametrize("path", [INFER, STREAM])
def test_message_prefix_invalid_is_refused(connection, path):
    for data, status, words in (
            (b"", None, "got none"),
            (b"\0", INVALID, "within a message"),
            (b"\0\0\0\0", INVALID, "within a message"),
            (h2.message(GOOD)[:-1], INVALID, "within a message"),
            (h2.message(GOOD, n_bytes=len(GOOD) + 1), INVALID, "within a message"),
            (h2.message(GOOD, n_bytes=MAX_BODY + 1), EXHAUSTED, "--max-body-size"),
            (h2.message(GOOD, n_bytes=1 << 31), EXHAUSTED, "--max-body-size"),
            (h2.message(GOOD, n_bytes=(1 << 32) - 1), EXHAUSTED, "--max-body-size"),
            *((h2.message(GOOD, flag=flag), INVALID, "") for flag in (1, 2, 3, 4, 128, 255))):
        ended = answer_to(connection, data, path)
        if status is None and path == STREAM:  # no message is no mistake there
            assert ended.status == OK
        else:
            assert ended.status == (status or INVALID) and words in ended.text, (data, str(ended))


def test_message_of_zero_bytes_is_empty_request(connection):
    """A prefix of 0 is an empty message: a request without a name."""
    assert answer_to(connection, h2.message(b"")).status == NOT_FOUND
    ended = answer_to(connection, h2.message(b"") * 200, STREAM)
    assert ended.status == OK and len(ended.messages()) == 200
    assert answer_to(connection, h2.message(b""), SERVICE + b"ServerLive").status == OK


def test_unary_second_message_is_refused(connection):
    ended = answer_to(connection, h2.message(GOOD) * 2)
    assert ended.status == INVALID and "one message" in ended.text
    ended = answer_to(connection, h2.message(GOOD) + b"\0")
    assert ended.status == INVALID and "one message" in ended.text


def test_message_split_at_each_byte(connection):
    """In two DATA frames, and in one a byte, padded and not, with empty ones between."""
    data = h2.message(GOOD)
    for at in range(len(data) + 1):
        stream = connection.begin(INFER)
        connection.send(h2.frame(h2.DATA, 0, stream, data[:at]))
        if at % 10 == 0:
            connection.ping()  # the first half has been read
        connection.send(h2.frame(h2.DATA, h2.PADDED | h2.END_STREAM, stream,
                                 bytes([3]) + data[at:] + bytes(3)))
        assert connection.answer(stream).status == OK
    for path, n, n_empty in ((INFER, 1, 2), (STREAM, 30, 0)):
        stream = connection.begin(path)
        for at in range(n * len(data)):
            connection.send(h2.frame(h2.DATA, 0, stream) * n_empty
                            + h2.frame(h2.DATA, 0, stream, (data * n)[at:at + 1]))
        connection.send_data(stream, b"", end=True)
        assert connection.answer(stream).status == OK
        assert len(connection.streams[stream].messages()) == n


def test_message_in_one_byte_frames(connection):
    tensor_bytes = bytes(200000)
    data = h2.message(request("id_uint8", [tensor("INPUT0", "UINT8", [len(tensor_bytes)])],
                              [tensor_bytes]))
    stream = connection.begin(INFER)
    connection.run_until(lambda: connection.window > len(data))
    connection.send(b"".join(h2.frame(h2.DATA, 0, stream, data[at:at + 1]) for at in range(len(data)))
                    + h2.frame(h2.DATA, h2.END_STREAM, stream))
    assert connection.answer(stream).status == OK


# ---- compression ----------------------------------------------------------------------------------

GZIP, DEFLATE = ((b"grpc-encoding", name) for name in (b"gzip", b"deflate"))


def test_message_invalid_compression_is_refused(connection):
    good = gzip.compress(GOOD)
    for coding, data in ((GZIP, b""), (GZIP, b"abc"), (GZIP, good[:-1]), (GZIP, good + b"x"),
                         (GZIP, good[:-8] + bytes(8)), (GZIP, zlib.compress(GOOD)),
                         (DEFLATE, b"\xff" * 100), (DEFLATE, zlib.compress(GOOD)[:-1])):
        ended = answer_to(connection, h2.message(data, flag=1), more=[coding])
        assert ended.status == INVALID, (coding, data, str(ended))
    assert answer_to(connection, h2.message(good, flag=1), more=[GZIP]).status == OK
    assert answer_to(connection, h2.message(GOOD), more=[GZIP]).status == OK
    for name in (b"br", b"snappy", b"GZIP", b"gzip,deflate", b"\xff", b""):
        ended = answer_to(connection, h2.message(GOOD), more=[(b"grpc-encoding", name)])
        assert ended.status == UNIMPLEMENTED, (name, str(ended))
        assert "gzip" in ended.heads[-1]["grpc-accept-encoding"]


def test_message_decompressed_over_limit_is_refused(connection):
    """The limit counts what comes out."""
    for path in (INFER, STREAM):
        for coding, data in ((GZIP, gzip.compress(bytes(200 << 20))),
                             (DEFLATE, zlib.compress(bytes(MAX_BODY + 1)))):
            assert len(data) < MAX_BODY
            ended = answer_to(connection, h2.message(data, flag=1), path, more=[coding])
            assert ended.status == EXHAUSTED and "--max-body-size" in ended.text, str(ended)


# ---- heads ----------------------------------------------------------------------------------------

def test_unknown_method_is_unimplemented(connection):
    for path in (b"/", b"/inference.GRPCInferenceService", b"/inference.GRPCInferenceService/",
                 INFER + b"/", INFER + b"x", INFER.lower(), b"/a/b", INFER.replace(b"M", b"%4d"),
                 b"/" + b"x" * 3000, INFER + b"?a=b"):
        refused(connection, GOOD, UNIMPLEMENTED, path=path)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"-1S", b"+1S", b"1 S", b"1.5S", b"1s", b"1N", b"0x1S",
                                  b"123456789S", b"99999999999999999999S", b"1S1S", b"\xff"])
def test_timeout_invalid_is_refused(connection, text):
    refused(connection, GOOD, INVALID, "grpc-timeout", more=[(b"grpc-timeout", text)])


def test_timeout_smallest_and_largest(connection):
    """The largest of each unit is far away, nothing is over at once."""
    for unit in b"HMSmu":
        assert connection.call(INFER, GOOD, more=[(b"grpc-timeout", b"99999999%c" % unit)]).status == OK
    assert connection.call(INFER, GOOD, more=[(b"grpc-timeout", b"0n")]).status in (OK, 4)


def test_metadata_invalid_binary_is_refused(connection):
    """What is not base64 is refused in `-bin` fields only; names and values of every kind are."""
    for value in (b"!", b"a", b"YQ===", b"Y Q=", b"\xff"):
        ended = connection.call(INFER, GOOD, more=[(b"x-bin", value)])
        assert ended.status == INVALID, (value, str(ended))
    for fields in ([(b"x-bin", b"YQ")], [(b"x-bin", b"YQ==,YWI")], [(b"x", b"\xff\x80")], [(b"x", b"")],
                   [(b"x" * 100, b"y" * 1000)], [(b"x", b"%d" % n) for n in range(100)]):
        ended = connection.call(INFER, GOOD, more=fields)
        assert ended.status == OK, (fields, str(ended))


def test_headers_over_limit_are_refused(connection):
    for fields in ([(b"x", b"v" * 1000)] * 66, [(b"n" * 60000, b"v" * 6000)], [(b"x", b"v")] * 300):
        refused(connection, GOOD, EXHAUSTED, "--max-header-size", more=fields)
