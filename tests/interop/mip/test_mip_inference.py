"""MIP over live sockets: pings, the protocol's own packets, inferences of every kind of item, batches,
and each error, followed by a good request. The client is lib/mip.py, made from the document."""
import json
import os

import numpy
import pytest

from lib import http1, metrics, mip
from lib.server import ROOT, Server

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

VECTORS = os.path.join(ROOT, "tests", "vectors", "mip")
MODELS = ("onnx_upper", "onnx_pair", "onnx_two_three", "onnx_add", "onnx_rows", "onnx_one_each",
          "onnx_dynamic", "onnx_scalar_fixed", "onnx_rank0", "onnx_optional_rows", "onnx_lookup",
          "onnx_total", "onnx_identity_fp64", "onnx_identity_bytes", "onnx_string")
PAIR = [mip.as_json([1, 2]), mip.as_json([3, 4])]


class Running:
    """A server with a listener for each model; `url(model)` says where."""

    def __init__(self, folder, repository):
        args = ["--model-repository", repository, "--max-body-size", "8MiB", "--request-memory",
                "32MiB"]
        for model in MODELS:
            args += ["--mip", f"tcp://127.0.0.1:0={model}"]
        args += ["--mip", f"unix://{folder}/pair=onnx_pair:1"]
        self.server = Server(folder, args)
        self.urls = dict(zip((*MODELS, "unix"), self.server.mip_urls))

    def url(self, model):
        return self.urls[model]


@pytest.fixture(scope="module")
def shared(tmp_path_factory, repositories):
    running = Running(tmp_path_factory.mktemp("mip"), repositories("onnx-only"))
    with running.server:
        yield running


@pytest.fixture
def running(shared):
    """Nothing may be in flight or held when the test has ended."""
    assert shared.server.process.poll() is None, shared.server.log_text()
    yield shared
    shared.server.wait_at_rest()
    shared.server.check_log()


def vector(name):
    with open(os.path.join(VECTORS, name + ".hex"), encoding="ascii") as file:
        return bytes.fromhex(file.read())


def pair_is_right(url):
    assert mip.infer(url, [PAIR]) == [[[4.0, 6.0]]]


# ---- pings ---------------------------------------------------------------------------------------

def test_ping_one_per_connection(running):
    for url in running.urls.values():
        mip.ping(url)


def test_ping_many_over_one_connection(running):
    with mip.Connection(running.url("unix")) as connection:
        for _ in range(100):
            connection.ping()
        connection.send(mip.PING_REQUEST * 1000)  # pipelined
        for _ in range(1000):
            connection.read_answer(mip.PING)


# ---- the protocol's own packets ------------------------------------------------------------------

@pytest.mark.parametrize("request_name, answer, model", [
    ("ping-request", "ping-response", "onnx_pair"),
    ("infer-text-request", "infer-text-response", "onnx_upper"),
    ("bad-version-request", "error-protocol", "onnx_pair"),
    ("bad-subtype-request", "error-subtype", "onnx_pair"),
    ("bad-kind-request", "error-method", "onnx_pair"),
    ("bad-shape-item-overruns-request", "error-shape", "onnx_pair"),
    ("bad-shape-missing-item-request", "error-shape", "onnx_pair"),
    ("bad-shape-trailing-bytes-request", "error-shape", "onnx_pair"),
])
def test_vector_answer_is_exact(running, request_name, answer, model):
    with mip.Connection(running.url(model)) as connection:
        connection.send(vector(request_name))
        expected = vector(answer)
        assert connection.read_exactly(len(expected)) == expected
        connection.half_close()
        connection.read_end()
    pair_is_right(running.url("onnx_pair"))


def test_vector_2x2_values(running):
    """Numbers may print as 4 or 4.0: values are compared."""
    with mip.Connection(running.url("onnx_pair")) as connection:
        connection.send(vector("infer-json-2x2-request"))
        answer = connection.read_inference(2, 2)
    _, expected = mip.parse_answer(vector("infer-json-2x2-response")[8:])
    assert [[mip.value_of(item) for item in element] for element in answer] == \
        [[mip.value_of(item) for item in element] for element in expected]


@pytest.mark.parametrize("size", [1, 3, 7, 11])
def test_vector_split_into_pieces(running, size):
    data = vector("infer-json-2x2-request")
    with mip.Connection(running.url("unix")) as connection:
        for at in range(0, len(data), size):
            connection.send(data[at:at + size])
        assert len(connection.read_inference(2, 2)) == 2


# ---- items ---------------------------------------------------------------------------------------

def test_infer_two_inputs_three_outputs(running):
    """n-output is the model's three, where the reference says n-input."""
    url = running.url("onnx_two_three")
    elements = [[mip.text(word), mip.as_json([n, -n])] for n, word in enumerate("ab ü".split(), 1)]
    with mip.Connection(url) as connection:
        connection.send(mip.infer_request(elements))
        answer = connection.read_inference(2, 2)
    assert [kind for kind, _ in answer[0]] == [mip.TEXT, mip.JSON, mip.JSON]
    assert [[mip.value_of(item) for item in element] for element in answer] == [
        ["ab", [2, -2], [True, False]], ["ü", [4, -4], [True, False]]]


@pytest.mark.parametrize("item, value", [
    (mip.text(""), ""), (mip.text("naïve ☃"), "NAïVE ☃"), (mip.as_json("kubemo"), "KUBEMO"),
    (mip.image(b"\x89PNG"), None),
])
def test_infer_text_item(running, item, value):
    if value is None:  # a file's bytes are the element; this one is no text to send back
        assert mip.refusal(running.url("onnx_upper"), mip.infer_request([[item]])) == "INTERNAL"
    else:
        assert mip.infer(running.url("onnx_upper"), [[item]]) == [[value]]


def test_infer_long_text(running):
    words = ["x" * 3_000_000, "", "y" * 20_000, "z"]
    assert mip.infer(running.url("onnx_upper"), [[mip.text(word)] for word in words]) == \
        [[word.upper()] for word in words]
    assert mip.infer(running.url("onnx_upper"), [[mip.text(words[0])]]) == [[words[0].upper()]]


def test_infer_json_object_becomes_bytes_element(running):
    """JSON that is no text goes into a BYTES element as it is written."""
    assert mip.infer(running.url("onnx_string"), [[(mip.JSON, b'{"a": [1, 2]}')]]) == \
        [['{"a": [1, 2]}']]


def test_infer_string_array_is_json(running):
    strings = ["a", "", 'quote"', "ü", "x" * 30_000]
    assert mip.infer(running.url("onnx_string"), [[mip.as_json(strings)]]) == [[strings]]


def test_infer_floats_are_exact(running):
    numbers = [0.1, 1e300, -5e-324, 123456789.123456789]
    assert mip.infer(running.url("onnx_identity_fp64"), [[mip.as_json(numbers)]]) == [[numbers]]


def test_infer_non_finite_values(running):
    got = mip.infer(running.url("onnx_identity_fp64"),
                    [[(mip.JSON, b"[NaN, Infinity, -Infinity, 1]")]])[0][0]
    assert numpy.array_equal(got, [numpy.nan, numpy.inf, -numpy.inf, 1], equal_nan=True)


def test_infer_text_item_may_hold_json(running):
    assert mip.infer(running.url("onnx_pair"), [[mip.text("[1,2]"), mip.text("[3,4]")]]) == \
        [[[4.0, 6.0]]]


# ---- batches -------------------------------------------------------------------------------------

@pytest.mark.parametrize("batch", [1, 2, 63, 64, 65, 128, 1000, 65535])
def test_infer_each_batch_size(running, batch):
    """The model's largest batch is 64."""
    elements = [[mip.as_json(i)] for i in range(batch)]
    answer = mip.infer(running.url("onnx_one_each"), elements)
    assert answer == [[float(i + 1)] for i in range(batch)]


def test_infer_65535_elements_without_batch_dimension(running):
    elements = [[mip.as_json([[i % 100, 2]])] for i in range(65535)]
    answer = mip.infer(running.url("onnx_dynamic"), elements)
    assert answer == [[[[float(i % 100)], [2.0]]] for i in range(65535)]


def test_infer_more_items_than_a_batch_has_elements(running):
    """The counts are compared with the model's before so many items are walked."""
    elements = [[mip.as_json([i % 7, 2]), mip.as_json([3, 4])] for i in range(33000)]
    with mip.Connection(running.url("onnx_pair")) as connection:
        assert connection.infer(elements) == [[[i % 7 + 3.0, 6.0]] for i in range(33000)]
        cut = mip.infer_payload(elements)[:-1]
        assert connection.refusal(mip.header(mip.INFER, len(cut)) + cut) == "SHAPE"
    few, many = (mip.infer_request([[(mip.TEXT, b"")] * 255] * n) for n in (1, 300))
    assert mip.refusal(running.url("onnx_pair"), many) == mip.refusal(running.url("onnx_pair"), few)
    pair_is_right(running.url("onnx_pair"))


def test_infer_shapes_differ_within_packet(running):
    widths = [3, 3, 1, 0, 5, 5, 5, 2, 3] * 11
    elements = [[mip.as_json([i] * n)] for i, n in enumerate(widths)]
    answer = mip.infer(running.url("onnx_rows"), elements)
    assert answer == [[[2.0 * i] * n] for i, n in enumerate(widths)]


@pytest.mark.parametrize("model, item, value", [
    ("onnx_dynamic", [[1, 2, 3], [4, 5, 6]], [[1, 4], [2, 5], [3, 6]]),
    ("onnx_scalar_fixed", [1, 2, 3, 4], [[2, 3, 4, 5]]),  # a missing dimension of 1
    ("onnx_scalar_fixed", [[1, 2, 3, 4]], [[2, 3, 4, 5]]),
    ("onnx_rank0", 1.5, 2.25),
    ("onnx_total", [[1, 2, 3, 4], [5, 6, 7, 8]], 36),
])
def test_infer_model_without_batch_dimension(running, model, item, value):
    assert mip.infer(running.url(model), [[mip.as_json(item)]] * 5) == [[value]] * 5


def test_infer_trailing_optional_input_omitted(running):
    url = running.url("onnx_optional_rows")
    x = mip.as_json([1, 2, 3, 4])
    assert mip.infer(url, [[x]] * 3) == [[[[2.0, 4.0, 6.0, 8.0]]]] * 3
    assert mip.infer(url, [[x, mip.as_json(3)]] * 3) == [[[[3.0, 6.0, 9.0, 12.0]]]] * 3
    assert mip.refusal(url, mip.infer_request([[x, x, x]])) == "SHAPE"


# ---- errors --------------------------------------------------------------------------------------

def good(connection):
    connection.ping()
    assert connection.infer([PAIR]) == [[[4.0, 6.0]]]


SMALL = mip.infer_payload([PAIR])


@pytest.mark.parametrize("name, data", [
    ("SUBTYPE", mip.header(mip.PING, 0, subtype=1)),
    ("SUBTYPE", mip.header(9, 3, subtype=1) + b"abc"),  # the subtype is looked at before the kind
    ("METHOD", mip.header(0, 0)),
    ("METHOD", mip.header(3, 5) + b"12345"),
    ("SHAPE", mip.header(mip.PING, 4) + b"1234"),
    ("SHAPE", mip.header(mip.INFER, 0)),
    ("SHAPE", mip.header(mip.INFER, 3) + b"\2\0\0"),
    ("SHAPE", mip.infer_request([PAIR], batch=0)),
    ("SHAPE", mip.infer_request([PAIR], batch=2)),
    ("SHAPE", mip.infer_request([PAIR, PAIR], batch=1)),
    ("SHAPE", mip.infer_request([PAIR], n_inputs=0)),
    ("SHAPE", mip.infer_request([PAIR], n_inputs=1)),
    ("SHAPE", mip.infer_request([PAIR], n_inputs=1, batch=2)),  # adds up, but is not the model's
    ("SHAPE", mip.infer_request([[*PAIR, PAIR[0]]])),
    ("SHAPE", mip.infer_request([PAIR[:1]])),
    ("SHAPE", mip.header(mip.INFER, len(SMALL) + 1) + SMALL + b"x"),
    ("SHAPE", mip.header(mip.INFER, len(SMALL) - 1) + SMALL[:-1]),
    ("SHAPE", mip.infer_request([[mip.as_json([1, 2, 3]), PAIR[1]]])),
    ("SHAPE", mip.infer_request([[mip.as_json([[1, 2], [3, 4]]), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[(mip.JSON, b"[1,2"), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[(mip.JSON, b""), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[mip.as_json(["a", "b"]), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[(mip.TEXT, b"\xff"), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[(4, b"[1,2]"), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[(0xffffffff, b""), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([[mip.image(b"\x89PNG"), PAIR[1]]])),
    ("INTERNAL", mip.infer_request([PAIR] * 300 + [[(mip.JSON, b"x"), PAIR[1]]] + [PAIR] * 300)),
])
def test_error_keeps_connection_open(running, name, data):
    with mip.Connection(running.url("onnx_pair")) as connection:
        for _ in range(2):
            assert connection.refusal(data) == name
            good(connection)
    assert mip.refusal(running.url("unix"), data) == name


def test_protocol_error_closes_connection(running):
    """What another version looks like nobody knows; the peer can read the error all the same."""
    with mip.Connection(running.url("onnx_pair")) as connection:
        assert connection.refusal(mip.header(9, 3, version=1, subtype=7) + b"abc") == "PROTOCOL"
        connection.read_end()
    pair_is_right(running.url("onnx_pair"))


def test_memory_error_by_announced_size(running):
    """8 MiB is the largest payload; nothing of it needs to be there."""
    for n_bytes in (8 * 1024 * 1024 + 1, 0xffffffff):
        with mip.Connection(running.url("onnx_pair")) as connection:
            assert connection.refusal(mip.header(mip.INFER, n_bytes)) == "MEMORY"
        with mip.Connection(running.url("onnx_pair")) as connection:
            # a client that goes on sending can read it too
            data = mip.header(mip.INFER, n_bytes) + bytes(9 * 1024 * 1024)
            assert connection.refusal(data) == "MEMORY"
    pair_is_right(running.url("onnx_pair"))


def test_memory_error_by_decoded_size(running):
    """32 MiB is what a packet may take besides its payload: 4 million numbers don't fit, nor does the
    answer to many small ones."""
    data = b"[" + b"1," * 3_999_999 + b"1]"
    assert mip.refusal(running.url("onnx_rows"),
                       mip.infer_request([[(mip.JSON, data)]])) == "MEMORY"
    pair_is_right(running.url("onnx_pair"))


def test_internal_error_on_failed_run(running):
    url = running.url("onnx_lookup")
    with mip.Connection(url) as connection:
        for _ in range(2):
            bad = mip.infer_request([[mip.as_json([0, 1])], [mip.as_json([0, 99])]])
            assert connection.refusal(bad) == "INTERNAL"
            assert connection.infer([[mip.as_json([0, 1])]]) == \
                [[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]]


def test_error_reason_is_logged(start_server, repositories):
    running = start_server("--model-repository", repositories("onnx-only"), "--mip",
                           "tcp://127.0.0.1:0=onnx_pair")
    before = metrics.read(running.address)['sluice_mip_errors_total{code="SHAPE"}']
    assert mip.refusal(running.mip_urls[0],
                       mip.infer_request([PAIR, [PAIR[0], mip.as_json([1])]])) == "SHAPE"
    line, = [line for line in running.log_lines() if line.get("code") == "SHAPE"]
    assert 'batch element 1, input "b": ' in line["reason"]
    assert line["peer"].startswith("127.0.0.1:")
    assert metrics.read(running.address)['sluice_mip_errors_total{code="SHAPE"}'] == before + 1


CODES = ("PROTOCOL", "SUBTYPE", "METHOD", "MEMORY", "SHAPE", "INTERNAL")


@pytest.mark.parametrize("name, data", [
    ("PROTOCOL", mip.header(mip.PING, 0, version=1)),
    ("SUBTYPE", mip.header(mip.PING, 0, subtype=1)),
    ("METHOD", mip.header(3, 0)),
    ("MEMORY", mip.header(mip.INFER, 0xffffffff)),
    ("SHAPE", mip.infer_request([PAIR], batch=0)),
    ("INTERNAL", mip.infer_request([[(mip.JSON, b"[1,2"), PAIR[1]]])),
])
def test_error_is_counted_by_code(running, name, data):
    """Its own counter moves by one, those of the others stay; it is a packet that was answered."""
    def counts():
        numbers = metrics.read(running.server.address)
        return [numbers[f'sluice_mip_errors_total{{code="{code}"}}'] for code in CODES] + \
            [numbers["sluice_mip_requests_total"]]
    before = counts()
    assert mip.refusal(running.url("onnx_pair"), data) == name
    moved = [int(after - count) for after, count in zip(counts(), before)]
    assert moved == [int(code == name) for code in CODES] + [1]


# ---- connections ---------------------------------------------------------------------------------

def test_pipelined_inferences_answered_in_order(running):
    url = running.url("onnx_one_each")
    with mip.Connection(url) as connection:
        requests = [mip.infer_request([[mip.as_json(n)]] * (n % 70 + 1)) for n in range(300)]
        requests[100] = mip.infer_request([[(9, b"")]])
        connection.send(b"".join(requests))
        for n in range(300):
            if n == 100:
                with pytest.raises(mip.Refused):
                    connection.read_answer(mip.INFER)
                continue
            assert connection.read_inference(1, n % 70 + 1)[0][0] == (mip.JSON, b"%d.0" % (n + 1))


@pytest.mark.parametrize("data", [
    mip.infer_request([PAIR])[:-1], mip.infer_request([PAIR]),
    mip.infer_request([PAIR] * 20_000), mip.infer_request([PAIR] * 20_000)[:100_000]])
def test_client_disconnect_leaves_server_at_rest(running, data):
    for _ in range(20):
        with mip.Connection(running.url("onnx_pair")) as connection:
            connection.send(data)
            connection.reset()
    pair_is_right(running.url("onnx_pair"))


def test_listener_serves_only_its_model(running):
    """A listener serves its own model, whatever the packet is like."""
    assert mip.refusal(running.url("onnx_upper"), mip.infer_request([PAIR])) == "SHAPE"
    assert mip.infer(running.url("onnx_upper"), [[mip.text("a")]]) == [["A"]]
    answer = http1.request(running.server.address, "POST", "/v2/models/onnx_pair/infer", json.dumps(
        {"inputs": [{"name": n, "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
                    for n in ("a", "b")]}).encode())
    assert json.loads(answer.body)["outputs"][0]["data"] == [2.0, 4.0]
