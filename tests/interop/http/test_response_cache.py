"""Answers that are kept (--cache-size, response_cache in a model's configuration): what counts as the same
request, what is never kept, how much memory it takes, and what the server's numbers say of it."""
import json
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from lib import http1, metrics
from lib.repository import Identity

CACHED = "response_cache { enable: true }"
HITS = 'nv_cache_num_hits_per_model{{model="{}",version="1"}}'
MISSES = 'nv_cache_num_misses_per_model{{model="{}",version="1"}}'


@pytest.fixture
def start(start_server, tmp_path):
    """Starts a server of these models."""
    def begin(models, *args, **options):
        for model in models:
            model.write(tmp_path / "models")
        return start_server("--model-repository", str(tmp_path / "models"), *args,
                            grpc=("127.0.0.1:0",), **options)
    return begin


def ask(running, model, values, datatype="FP32", module=triton_http, **more):
    """One request with one input, a numpy array of any shape. Returns: the answer."""
    address = running.address if module is triton_http else running.grpc_address
    values = numpy.asarray(values, triton_http_dtype(datatype))
    given = module.InferInput("INPUT0", values.shape, datatype)
    given.set_data_from_numpy(values)
    with module.InferenceServerClient(address) as client:
        return client.infer(model, [given], **more)


def triton_http_dtype(datatype):
    return {"FP32": numpy.float32, "INT32": numpy.int32, "BYTES": object}[datatype]


def counts(running, model):
    """Returns: hits, misses, executions; the metrics and both forms of the statistics say the same."""
    with triton_http.InferenceServerClient(running.address) as client:
        stats, = client.get_inference_statistics(model)["model_stats"]
    with triton_grpc.InferenceServerClient(running.grpc_address) as client:
        other, = client.get_inference_statistics(model).model_stats
    parts = stats["inference_stats"]
    hits, misses = parts["cache_hit"]["count"], parts["cache_miss"]["count"]
    assert (hits, misses) == (other.inference_stats.cache_hit.count,
                              other.inference_stats.cache_miss.count)
    page = metrics.read(running.address)
    assert (hits, misses) == (page[HITS.format(model)], page[MISSES.format(model)])
    assert parts["compute_infer"]["count"] == parts["success"]["count"] - hits
    assert parts["queue"]["count"] == parts["success"]["count"]
    return hits, misses, stats["execution_count"]


@pytest.mark.parametrize("flags", [("--cache-size", "1MiB"), ("--response-cache-byte-size", "1048576"),
                                   ("--cache-config", "local,size=1048576")])
def test_cache_repeated_request_hits(start, flags):
    running = start([Identity("m", [("FP32", [-1])], more=CACHED)], *flags, metrics_at="127.0.0.1:0")
    for module in (triton_http, triton_grpc, triton_http):
        answer = ask(running, "m", [1, 2, 3], module=module)
        assert list(answer.as_numpy("OUTPUT0")) == [1, 2, 3]
    assert counts(running, "m") == (2, 1, 1)
    assert list(ask(running, "m", [1, 2, 4]).as_numpy("OUTPUT0")) == [1, 2, 4]
    assert counts(running, "m") == (2, 2, 2)
    shown = json.loads(http1.request(running.metrics_address, "GET", "/status.json").body)["memory"]["cache"]
    assert shown == metrics.read(running.address)["sluice_response_cache_bytes"] > 0
    state = http1.request(running.metrics_address, "GET", "/debug/state").body.decode()
    assert f", {shown} in the response cache, of " in state


def test_cache_off_unless_model_and_server_enable(start):
    models = [Identity("m", [("FP32", [-1])], more=CACHED), Identity("plain", [("FP32", [-1])])]
    without = start(models[:1])
    for _ in range(2):
        ask(without, "m", [1])
    assert HITS.format("m") not in metrics.read(without.address)
    assert "response_cache has no effect" in without.log_text()
    running = start(models[1:], "--cache-size", "1MiB")
    for _ in range(2):
        ask(running, "plain", [1])
    page = metrics.read(running.address)
    assert HITS.format("plain") not in page and HITS.format("m") in page
    assert page["sluice_response_cache_entries"] == 0


def test_cache_key_fields(start):
    """The same bytes in another shape, with other parameters, for other outputs: not the same request."""
    running = start([Identity("m", [("FP32", [-1, -1])], more=CACHED,
                              parameters={"echo_parameters": "true"}),
                     Identity("two", [("FP32", [-1]), ("FP32", [-1])], more=CACHED)],
                    "--cache-size", "1MiB")
    seen = 0

    def fresh(shape, **more):
        nonlocal seen
        for _ in range(2):
            answer = ask(running, "m", numpy.arange(4).reshape(shape), **more)
            assert answer.as_numpy("OUTPUT0").shape == shape
            said = answer.get_response().get("parameters", {})
            assert said == more.get("parameters", {})
        seen += 1
        assert counts(running, "m") == (seen, seen, seen)
    fresh((1, 4))
    fresh((2, 2))
    fresh((4, 1))
    fresh((1, 4), parameters={"a": 1})
    fresh((1, 4), parameters={"a": "1"})
    fresh((1, 4), parameters={"a": True})
    fresh((1, 4), parameters={"a": 1, "b": 2})
    fresh((1, 4), parameters={"ab": 12})
    # What is the scheduler's business, or only the answer's form, does not count.
    ask(running, "m", numpy.arange(4).reshape((1, 4)), request_id="other", priority=1, timeout=1000000,
        sequence_id=7)
    assert counts(running, "m") == (seen + 1, seen, seen)

    def two(first, second, *wanted, order=1):
        body = {"inputs": [{"name": name, "shape": [1], "datatype": "FP32", "data": [value]}
                           for name, value in (("INPUT0", first), ("INPUT1", second))][::order],
                "outputs": [{"name": name} for name in wanted]}
        answer = http1.request(running.address, "POST", "/v2/models/two/infer",
                               json.dumps(body).encode())
        assert answer.status == 200, str(answer)
        return [(one["name"], one["data"]) for one in json.loads(answer.body)["outputs"]]
    for _ in range(2):
        assert two(1, 2) == [("OUTPUT0", [1]), ("OUTPUT1", [2])]
        assert two(2, 1) == [("OUTPUT0", [2]), ("OUTPUT1", [1])]
        assert two(1, 2, "OUTPUT1") == [("OUTPUT1", [2])]
        assert two(1, 2, "OUTPUT0") == [("OUTPUT0", [1])]
        assert two(1, 2, "OUTPUT1", "OUTPUT0") == [("OUTPUT1", [2]), ("OUTPUT0", [1])]
    assert counts(running, "two") == (5, 5, 5)
    assert two(1, 2, order=-1) == [("OUTPUT0", [1]), ("OUTPUT1", [2])]
    assert counts(running, "two") == (6, 5, 5)


def test_cache_hit_in_each_output_form(start):
    """Of how an answer is written the model knows nothing: JSON, binary, its best values."""
    running = start([Identity("m", [("FP32", [4])], more=CACHED)], "--cache-size", "1MiB")
    values = [3, 1, 4, 2]
    for _ in range(2):
        for binary in (True, False):
            wanted = [triton_http.InferRequestedOutput("OUTPUT0", binary_data=binary)]
            assert list(ask(running, "m", values, outputs=wanted).as_numpy("OUTPUT0")) == values
        for n_classes, expected in ((1, ["4.000000:2"]), (2, ["4.000000:2", "3.000000:0"])):
            for module in (triton_http, triton_grpc):
                wanted = [module.InferRequestedOutput("OUTPUT0", class_count=n_classes)]
                answer = ask(running, "m", values, module=module, outputs=wanted)
                assert [text.decode() for text in answer.as_numpy("OUTPUT0")] == expected
    assert counts(running, "m") == (11, 1, 1)


def test_cache_bytes_tensors(start):
    running = start([Identity("m", [("BYTES", [-1])], more=CACHED)], "--cache-size", "1MiB")
    for texts in ([b"ab", b"c"], [b"a", b"bc"], [b"abc", b""], [b"abc"], [b"ab", b"c"]):
        answer = ask(running, "m", numpy.array(texts, object), "BYTES")
        assert list(answer.as_numpy("OUTPUT0")) == texts
    assert counts(running, "m") == (1, 4, 4)


def test_cache_batches(start):
    running = start([Identity("m", [("FP32", [2])], max_batch_size=8, more=CACHED)],
                    "--cache-size", "1MiB")
    for rows in (1, 2, 1, 2):
        answer = ask(running, "m", numpy.arange(rows * 2).reshape((rows, 2)))
        assert list(answer.as_numpy("OUTPUT0").reshape(-1)) == list(range(rows * 2))
    assert counts(running, "m") == (2, 2, 2)
    with triton_http.InferenceServerClient(running.address) as client:
        stats, = client.get_inference_statistics("m")["model_stats"]
    assert stats["inference_count"] == 3 # one of 1, one of 2


def test_cache_failures_are_not_stored(start):
    running = start([Identity("m", [("FP32", [-1])], more=CACHED,
                              parameters={"fail": "every request is refused"})], "--cache-size", "1MiB")
    for n in range(1, 4):
        with pytest.raises(InferenceServerException, match="every request is refused"):
            ask(running, "m", [1])
        assert counts(running, "m") == (0, n, n)
    assert metrics.read(running.address)["sluice_response_cache_entries"] == 0


def test_cache_decoupled_model_fails_load(start):
    running = start([Identity("d", [("FP32", [-1])],
                              more=CACHED + " model_transaction_policy { decoupled: true }"),
                     Identity("m", [("FP32", [-1])], more=CACHED)],
                    "--cache-size", "1MiB", "--strict-readiness", "false")
    running.expect_error("response_cache must not be enabled")
    with pytest.raises(InferenceServerException, match="response_cache must not be enabled"):
        ask(running, "d", [1])
    assert list(ask(running, "m", [1]).as_numpy("OUTPUT0")) == [1]


def test_cache_reload_clears_entries(start):
    running = start([Identity("m", [("FP32", [-1])], more=CACHED)], "--cache-size", "1MiB",
                    "--model-control-mode", "explicit", "--load-model", "m")
    for _ in range(2):
        ask(running, "m", [1])
    assert counts(running, "m") == (1, 1, 1)
    with triton_http.InferenceServerClient(running.address) as client:
        told = client.get_model_config("m")
        assert told["response_cache"] == {"enable": True}
        with triton_grpc.InferenceServerClient(running.grpc_address) as other:
            assert other.get_model_config("m").config.response_cache.enable
        client.load_model("m", config=json.dumps({**told, "parameters": {
            "fail": {"string_value": "another model now"}}}))
        with pytest.raises(InferenceServerException, match="another model now"):
            ask(running, "m", [1])
        client.unload_model("m")
    metrics.wait_until(running.address, lambda page: page["sluice_response_cache_entries"] == 0,
                       "an empty cache")


def test_cache_shared_memory_is_read_each_time(start, request):
    """The region has other contents than when its request was answered last."""
    running = start([Identity("m", [("FP32", [4])], more=CACHED)], "--cache-size", "1MiB",
                    "--allow-client-shm", "true")
    key = f"/sluice-cache-{numpy.random.randint(1 << 30)}"
    handle = shm.create_shared_memory_region("inputs", key, 32)
    request.addfinalizer(lambda: shm.destroy_shared_memory_region(handle))
    with triton_http.InferenceServerClient(running.address) as client:
        client.register_system_shared_memory("inputs", key, 32)
        for values in ([1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]):
            shm.set_shared_memory_region(handle, [numpy.array(values, numpy.float32)])
            given = triton_http.InferInput("INPUT0", [4], "FP32")
            given.set_shared_memory("inputs", 16)
            wanted = triton_http.InferRequestedOutput("OUTPUT0")
            wanted.set_shared_memory("inputs", 16, 16)
            client.infer("m", [given], outputs=[wanted])
            assert list(shm.get_contents_as_numpy(handle, numpy.float32, [4], 16)) == values
        client.unregister_system_shared_memory("inputs")
    assert counts(running, "m") == (1, 2, 2)
    assert list(ask(running, "m", [5, 6, 7, 8]).as_numpy("OUTPUT0")) == [5, 6, 7, 8]
    assert counts(running, "m") == (2, 2, 2)


def test_cache_memory_is_bounded(start):
    """What was used longest ago makes room; what is too large is not kept."""
    limit = 256 * 1024
    running = start([Identity("m", [("FP32", [-1])], more=CACHED)], "--cache-size", str(limit))
    size = 4096 # values of 4 bytes
    favourite = numpy.full(size, -1)
    for number in range(60):
        ask(running, "m", numpy.full(size, number))
        ask(running, "m", favourite)
        page = metrics.read(running.address)
        assert page["sluice_response_cache_bytes"] <= limit
    assert page["sluice_response_cache_entries"] > 8
    assert page["sluice_response_cache_evictions_total"] > 40
    assert counts(running, "m") == (59, 61, 61)
    ask(running, "m", numpy.full(size, 59))
    ask(running, "m", numpy.full(size, 0)) # gone
    assert counts(running, "m") == (60, 62, 62)
    for n in range(1, 3):
        big = numpy.zeros(limit // 4 + 1)
        assert numpy.array_equal(ask(running, "m", big).as_numpy("OUTPUT0"), big)
        page = metrics.read(running.address)
        assert page["sluice_response_cache_refused_total"] == n
        assert page["sluice_response_cache_bytes"] <= limit
    assert page["sluice_response_cache_entries"] > 8 # it did not make the others go


def test_cache_concurrent_requests(start):
    """Threads ask the same few things, more than fit: each gets its own answer."""
    running = start([Identity("m", [("FP32", [-1])], more=CACHED)], "--cache-size", "128KiB")
    wrong = []

    def work(seed):
        draw = numpy.random.default_rng(seed)
        with triton_http.InferenceServerClient(running.address) as client:
            for _ in range(150):
                values = numpy.full(int(draw.integers(1, 4)) * 2000, draw.integers(10), numpy.float32)
                given = triton_http.InferInput("INPUT0", values.shape, "FP32")
                given.set_data_from_numpy(values)
                if not numpy.array_equal(client.infer("m", [given]).as_numpy("OUTPUT0"), values):
                    wrong.append(values)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hits, misses, _ = counts(running, "m")
    assert not wrong and hits + misses == 900 and hits > 0
    page = metrics.read(running.address)
    assert page["sluice_response_cache_bytes"] <= 128 * 1024
    assert page["sluice_response_cache_evictions_total"] > 0
