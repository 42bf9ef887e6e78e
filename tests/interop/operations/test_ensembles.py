"""Ensembles: models whose requests run through a graph of other models. Chains and diamonds of ONNX and
identity models over REST, gRPC and MIP, with the values that come out checked; what the metadata, the
configuration and the statistics say; decoupled members, failures and limits. Members that come and go, and graphs
that are wrong, are in test_ensemble_members.py."""
import json
import threading

import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from lib import ensembles, http1, metrics, mip, otlp, repository, traces
from lib.ensembles import (ENDS, ROW, Live, ensemble, step, tensor, write_affine, write_ensemble, write_models,
                           write_stream)
from lib.repository import Identity


@pytest.fixture(name="live")
def serve(start_server, tmp_path):
    write_models(tmp_path / "models")
    made = Live(start_server, tmp_path / "models")
    yield made
    made.close()
    metrics.wait_at_rest(made.server.address)


@pytest.fixture(name="start")
def starter(start_server, tmp_path):
    yield from ensembles.starts(start_server, tmp_path)


# ---- values --------------------------------------------------------------------------------------

@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_chain_has_the_values_of_its_members_one_after_the_other(live, protocol):
    for n_rows in (1, 3, 8):
        rows = numpy.arange(n_rows * 4, dtype=numpy.float32).reshape(n_rows, 4)
        assert numpy.array_equal(live.infer("chain", {"IN": rows}, protocol=protocol)["OUT"],
                                 rows * 2 + 1)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_diamond_joins_what_two_members_made_of_one_input(live, protocol):
    got = live.infer("diamond", {"IN": ROW}, protocol=protocol)
    assert numpy.array_equal(got["TOTAL"], ROW * 2 + ROW + 1)
    assert numpy.array_equal(got["DIFFERENCE"], ROW * 2 - ROW - 1)


def test_chain_over_mip_answers_each_element(start_server, tmp_path):
    folder = tmp_path / "models"
    write_models(folder)
    server = start_server("--model-repository", folder, "--mip", "tcp://127.0.0.1:0=chain")
    got = mip.infer(server.mip_urls[0], [[mip.as_json([1, 2, 3, 4])], [mip.as_json([5, 6, 7, 8])]])
    assert got == [[[3, 5, 7, 9]], [[11, 13, 15, 17]]]


def test_outputs_that_are_asked_for_run_only_the_steps_they_need(start):
    def write(folder):
        write_affine(folder, "double", 2, 0)
        write_affine(folder, "add_one", 1, 1)
        write_ensemble(folder, "both", ensemble(
            tensor("input", "IN") + tensor("output", "DOUBLED") + tensor("output", "MORE"),
            step("double", {"x": "IN"}, {"y": "DOUBLED"}), step("add_one", {"x": "IN"}, {"y": "MORE"})))

    live = start(write)
    got = live.infer("both", {"IN": ROW}, outputs=["MORE"])
    assert list(got) == ["MORE"] and numpy.array_equal(got["MORE"], ROW + 1)
    assert live.statistics("double")["inference_count"] == 0
    got = live.infer("both", {"IN": ROW}, outputs=["MORE", "DOUBLED"])  # in the order of the request
    assert list(got) == ["MORE", "DOUBLED"] and numpy.array_equal(got["DOUBLED"], ROW * 2)
    assert live.statistics("double")["inference_count"] == 1


def test_tensor_goes_on_to_several_steps_and_out(start):
    def write(folder):
        write_models(folder)
        write_ensemble(folder, "fan", ensemble(
            tensor("input", "IN") + "".join(tensor("output", name) for name in ("MID", "A", "B", "C")),
            step("pass", {"INPUT0": "IN"}, {"OUTPUT0": "MID"}),
            step("double", {"x": "MID"}, {"y": "A"}),
            step("add_one", {"x": "MID"}, {"y": "B"}),
            step("sum", {"left": "MID", "right": "MID"}, {"total": "C"})))

    live = start(write)
    got = live.infer("fan", {"IN": ROW})
    assert numpy.array_equal(got["MID"], ROW) and numpy.array_equal(got["A"], ROW * 2)
    assert numpy.array_equal(got["B"], ROW + 1) and numpy.array_equal(got["C"], ROW * 2)


def test_chain_of_identities_copies_no_payload(start):
    """Each hands on the bytes of its input: they are held until the response was read."""
    n = 1 << 18

    def write(folder):
        Identity("pass", [("FP32", [-1])]).write(folder)
        names = ["IN", "b", "c", "d", "OUT"]
        write_ensemble(folder, "relay", ensemble(
            tensor("input", "IN", dims="-1") + tensor("output", "OUT", dims="-1"),
            *[step("pass", {"INPUT0": a}, {"OUTPUT0": b}) for a, b in zip(names, names[1:])],
            max_batch_size=0))

    live = start(write)
    array = numpy.arange(n, dtype=numpy.float32)

    def copied_by(model, name, output):
        live.infer(model, {name: array})
        before = metrics.read(live.server.address)["sluice_copied_bytes_total"]
        for _ in range(5):
            assert numpy.array_equal(live.infer(model, {name: array})[output], array)
        return metrics.read(live.server.address)["sluice_copied_bytes_total"] - before

    by_one = copied_by("pass", "INPUT0", "OUTPUT0")
    # What a connection copies differs a little from request to request; a step would copy 4 * n bytes.
    assert copied_by("relay", "IN", "OUT") < by_one + n


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_texts_and_empty_tensors_go_through(start, protocol):
    def write(folder):
        Identity("words", [("BYTES", [-1]), ("INT32", [-1])]).write(folder)
        ends = "".join(tensor(kind, f"{kind.upper()}_{name}", datatype, "-1")
                       for kind in ("input", "output")
                       for name, datatype in (("S", "STRING"), ("N", "INT32")))
        write_ensemble(folder, "talk", ensemble(
            ends, step("words", {"INPUT0": "INPUT_S", "INPUT1": "INPUT_N"},
                       {"OUTPUT0": "s", "OUTPUT1": "n"}),
            step("words", {"INPUT0": "s", "INPUT1": "n"},
                 {"OUTPUT0": "OUTPUT_S", "OUTPUT1": "OUTPUT_N"}), max_batch_size=0))

    live = start(write)
    for words, numbers in (([b"a", b"", "ü☃".encode() * 500], [1, 2]), ([b"x"], []), ([], [3]),
                           ([b"w" * 70000] * 40, [])):
        inputs = {"INPUT_S": numpy.array(words, numpy.object_),
                  "INPUT_N": numpy.array(numbers, numpy.int32)}
        got = live.infer("talk", inputs, protocol=protocol)
        assert got["OUTPUT_S"].tolist() == words and got["OUTPUT_N"].tolist() == numbers


def test_ensembles_inside_of_ensembles_and_pinned_versions(start):
    def write(folder):
        write_models(folder)
        write_affine(folder, "double", 3, 0, version="2")  # triples
        inner = ensemble(ENDS, step("double", {"x": "IN"}, {"y": "mid"}, version=1),
                         step("double", {"x": "mid"}, {"y": "OUT"}, version=2))
        write_ensemble(folder, "six", inner)
        write_ensemble(folder, "outer", ensemble(ENDS, step("six", {"IN": "IN"}, {"OUT": "mid"}),
                                                 step("double", {"x": "mid"}, {"y": "OUT"})))

    live = start(write)
    assert numpy.array_equal(live.infer("six", {"IN": ROW})["OUT"], ROW * 6)
    assert numpy.array_equal(live.infer("outer", {"IN": ROW})["OUT"], ROW * 18)


def test_members_that_batch_and_members_that_do_not(start):
    def write(folder):
        write_affine(folder, "double", 2, 0)
        Identity("single", [("FP32", [4])]).write(folder)
        Identity("whole", [("FP32", [-1, 4])]).write(folder)
        write_ensemble(folder, "narrow", ensemble(  # one row only: "single" has no batch
            ENDS, step("single", {"INPUT0": "IN"}, {"OUTPUT0": "mid"}),
            step("double", {"x": "mid"}, {"y": "OUT"})))
        write_ensemble(folder, "wide", ensemble(
            ENDS, step("whole", {"INPUT0": "IN"}, {"OUTPUT0": "mid"}),
            step("double", {"x": "mid"}, {"y": "OUT"})))
        write_ensemble(folder, "flat", ensemble(
            tensor("input", "IN") + tensor("output", "OUT"),
            step("double", {"x": "IN"}, {"y": "OUT"}), max_batch_size=0))
        square = {"dims": "2, 2", "more": "reshape { shape: [ 4 ] }"}
        write_ensemble(folder, "square", ensemble(
            tensor("input", "IN", **square) + tensor("output", "OUT", **square),
            step("double", {"x": "IN"}, {"y": "OUT"}), max_batch_size=0))

    live = start(write)
    square = ROW[0].reshape(2, 2)
    assert numpy.array_equal(live.infer("square", {"IN": square})["OUT"], square * 2)
    rows = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    assert numpy.array_equal(live.infer("narrow", {"IN": ROW})["OUT"], ROW * 2)
    assert numpy.array_equal(live.infer("wide", {"IN": rows})["OUT"], rows * 2)
    assert numpy.array_equal(live.infer("flat", {"IN": ROW[0]})["OUT"], ROW[0] * 2)
    refused = live.refusal("narrow", {"IN": rows})
    assert "in ensemble 'narrow', input \"INPUT0\": expected shape [4]" in \
        refused.message()


def test_outputs_have_the_labels_of_the_member_that_makes_them(start):
    def write(folder):
        for name in ("labelled", "others"):
            Identity(name, [("FP32", [4])]).write(folder)
            config = folder / name / "config.pbtxt"
            config.write_text(config.read_text().replace('"OUTPUT0"', '"OUTPUT0" label_filename: "labels"'))
            (folder / name / "labels").write_text("".join(f"{name}{i}\n" for i in range(4)))
        ends = tensor("input", "IN") + tensor("output", "OUT")
        (folder / "own").mkdir()
        (folder / "own" / "mine").write_text("a\nb\nc\nd\n")
        steps = (step("others", {"INPUT0": "IN"}, {"OUTPUT0": "mid"}),
                 step("labelled", {"INPUT0": "mid"}, {"OUTPUT0": "OUT"}))
        write_ensemble(folder, "inherits", ensemble(ends, *steps, max_batch_size=0))
        write_ensemble(folder, "own", ensemble(
            tensor("input", "IN") + tensor("output", "OUT", more='label_filename: "mine"'), *steps, max_batch_size=0))

    live = start(write)
    given = triton_http.InferInput("IN", [4], "FP32").set_data_from_numpy(numpy.array([1, 4, 3, 2], numpy.float32))
    for name, labels in (("inherits", ("labelled1", "labelled2")), ("own", ("b", "c"))):
        wanted = triton_http.InferRequestedOutput("OUT", class_count=2)
        got = live.http.infer(name, [given], outputs=[wanted]).as_numpy("OUT")
        assert [text.decode().split(":")[2] for text in got.flatten()] == list(labels), (name, got)


def test_optional_inputs_may_be_left_out(start):
    def write(folder):
        Identity("two", [("FP32", [4]), ("FP32", [4])], max_batch_size=8).write(folder)
        path = folder / "two" / "config.pbtxt"
        path.write_text(path.read_text().replace('name: "INPUT1"', 'name: "INPUT1" optional: true'))
        write_ensemble(folder, "maybe", ensemble(
            tensor("input", "IN") + tensor("input", "MORE", more="optional: true") +
            tensor("output", "OUT"),
            step("two", {"INPUT0": "IN", "INPUT1": "MORE"}, {"OUTPUT0": "OUT"})))

    live = start(write)
    assert numpy.array_equal(live.infer("maybe", {"IN": ROW})["OUT"], ROW)
    assert numpy.array_equal(live.infer("maybe", {"IN": ROW, "MORE": ROW})["OUT"], ROW)
    assert "missing required input(s) ['IN']" in live.refusal("maybe", {"MORE": ROW}).message()


def test_reshape_of_ensemble_and_member(start):
    def write(folder):
        Identity("square", [("FP32", [2, 2])], max_batch_size=8).write(folder)
        write_ensemble(folder, "shaped", ensemble(
            tensor("input", "IN", more="reshape { shape: [ 2, 2 ] }") +
            tensor("output", "OUT", more="reshape { shape: [ 2, 2 ] }"),
            step("square", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))

    got = start(write).infer("shaped", {"IN": ROW})["OUT"]
    assert got.shape == (1, 4) and numpy.array_equal(got, ROW)


# ---- decoupled members ---------------------------------------------------------------------------

def stream(live, model, inputs, patience=http1.PATIENCE, **more):
    """Returns: the responses, then the error or None."""
    got, done = [], threading.Event()

    def receive(result, error):
        got.append(error if error is not None else result)
        final = error is not None or \
            result.get_response().parameters["triton_final_response"].bool_param
        if final:
            done.set()

    made = [triton_grpc.InferInput(key, array.shape, "FP32") for key, array in inputs.items()]
    for item, array in zip(made, inputs.values()):
        item.set_data_from_numpy(array)
    live.grpc.start_stream(receive)
    try:
        live.grpc.async_stream_infer(model, made, enable_empty_final_response=True, **more)
        assert done.wait(patience), got
    finally:
        live.grpc.stop_stream()
    return got


def write_streaming(folder):
    write_models(folder)
    write_stream(folder)
    Identity("many_apart", [("FP32", [4])], max_batch_size=8,
             parameters={"responses_by_request": "true", "end_apart": "true"},
             more=repository.DECOUPLE).write(folder)
    for name, member in (("flow", "many"), ("flow_apart", "many_apart")):
        write_ensemble(folder, name, ensemble(
            ENDS, step("double", {"x": "IN"}, {"y": "before"}),
            step(member, {"INPUT0": "before"}, {"OUTPUT0": "item"}),
            step("add_one", {"x": "item"}, {"y": "OUT"})))


@pytest.mark.parametrize("model", ["flow", "flow_apart"])
@pytest.mark.parametrize("n", [0, 1, 2, 50, 3000])
def test_each_response_of_a_decoupled_member_goes_on(start, model, n):
    live = start(write_streaming)
    got = stream(live, model, {"IN": ROW}, parameters={"responses": n})
    assert [item for item in got if isinstance(item, Exception)] == []
    full = [item for item in got if item.get_response().outputs]
    assert len(full) == n and len(got) - len(full) <= 1
    assert all(numpy.array_equal(item.as_numpy("OUT"), ROW * 2 + 1) for item in full)
    assert live.http.get_model_config(model)["model_transaction_policy"]["decoupled"] is True


def test_decoupled_ensemble_in_one_of_one_answer_is_refused(start):
    refused = start(write_streaming).refusal("flow")
    assert "decoupled" in refused.message()


def test_error_after_some_responses_ends_the_stream(start):
    live = start(write_streaming)
    got = stream(live, "flow", {"IN": ROW}, parameters={"responses": 5, "fail_at": 3})
    assert isinstance(got[-1], InferenceServerException)
    assert "in ensemble 'flow', " in got[-1].message()
    assert len(got) <= 3
    live.server.wait_for(lambda: numpy.array_equal(live.infer("chain", {"IN": ROW})["OUT"], ROW * 2 + 1),
                         "a good request")


# ---- what is said of it --------------------------------------------------------------------------

def test_metadata_and_configuration_are_as_in_triton(live):
    metadata = live.http.get_model_metadata("chain")
    assert metadata["platform"] == "ensemble" and metadata["versions"] == ["1"]
    assert metadata["inputs"] == [{"name": "IN", "datatype": "FP32", "shape": [-1, 4]}]
    config = live.http.get_model_config("chain")
    assert (config["platform"], config["backend"]) == ("ensemble", "")
    assert config["instance_group"] == []
    assert config["ensemble_scheduling"]["step"][1] == {
        "model_name": "add_one", "model_version": -1, "input_map": {"x": "doubled"},
        "output_map": {"y": "OUT"}, "model_namespace": ""}
    steps = live.grpc.get_model_config("chain").config.ensemble_scheduling.step
    assert [item.model_name for item in steps] == ["double", "add_one"]
    assert steps[0].model_version == -1 and dict(steps[0].input_map) == {"x": "IN"}


def test_statistics_count_the_ensemble_and_its_members(live):
    for rows in (1, 3):
        live.infer("chain", {"IN": numpy.ones((rows, 4), numpy.float32)})
    chain = live.statistics("chain")
    assert (chain["inference_count"], chain["execution_count"]) == (4, 2)
    assert chain["inference_stats"]["success"]["count"] == 2
    assert [row["batch_size"] for row in chain["batch_stats"]] == [1, 3]
    infer = 0
    for member in ("double", "add_one"):
        statistics = live.statistics(member)
        assert (statistics["inference_count"], statistics["execution_count"]) == (4, 2)
        infer += statistics["inference_stats"]["compute_infer"]["ns"]
    assert chain["inference_stats"]["compute_infer"]["ns"] == infer > 0
    assert chain["inference_stats"]["success"]["ns"] >= infer
    assert live.statistics("sum")["inference_count"] == 0


def test_response_names_the_sequence_as_triton_does(live):
    made = triton_http.InferInput("IN", ROW.shape, "FP32")
    made.set_data_from_numpy(ROW)
    got = live.http.infer("chain", [made]).get_response()["parameters"]
    assert (got["sequence_id"], got["sequence_start"], got["sequence_end"]) == (0, False, False)
    got = live.http.infer("chain", [made], sequence_id=7, sequence_start=True).get_response()
    got = got["parameters"]
    assert (got["sequence_id"], got["sequence_start"], got["sequence_end"]) == (7, True, False)


def test_timeout_and_failure_of_a_member_name_its_step(start):
    def write(folder):
        Identity("broken", [("FP32", [4])], max_batch_size=8, parameters={"fail": "out of ink"}).write(folder)
        Identity("slow", [("FP32", [4])], max_batch_size=8, parameters={"delay_us": 10000000},
                 more="dynamic_batching { default_queue_policy { allow_timeout_override: true } }"
                 ).write(folder)
        write_ensemble(folder, "wait", ensemble(ENDS, step("slow", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))
        write_ensemble(folder, "fails", ensemble(ENDS, step("broken", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))

    live = start(write)
    refused = live.refusal("fails")
    assert refused.message().endswith('in ensemble \'fails\', out of ink (step 0, model "broken")')
    with http1.connect(live.server.address) as busy:
        body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4],
                                       "data": [1, 2, 3, 4]}]})
        busy.sendall(f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
                     f"\r\n\r\n{body}".encode())
        metrics.wait_until(live.server.address,
                           lambda numbers: metrics.others_in_flight(numbers) > 0, "the member is busy")
        refused = live.refusal("wait", timeout=1000)  # the parameter: microseconds in a queue
    assert "in ensemble 'wait', Request timeout expired: the request waited 1000 us" in refused.message()
    assert live.statistics("fails")["inference_stats"]["fail"]["count"] == 1


def test_each_step_has_a_trace_inside_of_the_ensembles(start, tmp_path):
    file = tmp_path / "traces.json"
    live = start(write_models, "--trace-config", f"triton,file={file}", "--trace-config", "level=TIMESTAMPS",
                 "--trace-config", "rate=1")
    live.infer("chain", {"IN": ROW}, request_id="the id")
    written = 'sluice_traces_total{result="written"}'
    metrics.wait_until(live.server.address, lambda numbers: numbers[written] == 3, "three traces")
    by_model = {trace["request"]["model_name"]: (number, trace["request"])
                for number, trace in traces.read(file).items()}
    assert set(by_model) == {"chain", "double", "add_one"}
    outer, request = by_model["chain"]
    assert "parent_id" not in request
    for member in ("double", "add_one"):
        assert by_model[member][1]["parent_id"] == outer
        assert by_model[member][1]["request_id"] == "the id"


def test_collector_gets_one_trace_of_an_ensemble_and_its_steps(start):
    """Of an ensemble within an ensemble: one trace id, and each span within that of the model it ran for."""
    def write(folder):
        write_models(folder)
        write_ensemble(folder, "outer", ensemble(ENDS, step("chain", {"IN": "IN"}, {"OUT": "OUT"})))

    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with otlp.Collector() as collector:
        live = start(write, "--trace-config", "mode=opentelemetry", "--trace-config", "level=TIMESTAMPS", "--trace-config",
                     "rate=1", "--trace-config", f"opentelemetry,url={collector.url}", "--trace-config",
                     "opentelemetry,bsp_schedule_delay=10")
        for headers in (None, {"traceparent": f"00-{trace}-{caller}-01"}):
            n = len(collector.spans())
            live.infer("outer", {"IN": ROW}, headers=headers)
            collector.wait(lambda n=n: len(collector.spans()) == n + 7, http1.PATIENCE)
            spans = collector.spans()[n:]
            by_id = {span["spanId"]: span for span in spans}
            assert len(by_id) == 7 and len({span["traceId"] for span in spans}) == 1
            within = sorted((span["name"], by_id[span["parentSpanId"]]["name"]) for span in spans
                            if span.get("parentSpanId") in by_id)
            assert within == [("add_one", "chain"), ("chain", "outer"), ("compute", "add_one"), ("compute", "double"),
                              ("double", "chain"), ("outer", "InferRequest")]
            (root,) = [span for span in spans if span["name"] == "InferRequest"]
            assert (root.get("parentSpanId") == caller, root["traceId"] == trace) == (headers is not None,) * 2, root
            for span in spans:
                outer = by_id.get(span.get("parentSpanId"), root)
                assert int(outer["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
                assert "status" not in span


@pytest.mark.parametrize("cached", ["chain", "double"])
def test_response_cache_of_ensemble_and_member(start, cached):
    def write(folder):
        write_models(folder)
        path = folder / cached / "config.pbtxt"
        path.write_text(path.read_text() + "response_cache { enable: true }\n")

    live = start(write, "--cache-size", "1MB")
    for _ in range(3):
        assert numpy.array_equal(live.infer("chain", {"IN": ROW})["OUT"], ROW * 2 + 1)
    statistics = live.statistics(cached)["inference_stats"]
    assert (statistics["cache_hit"]["count"], statistics["cache_miss"]["count"]) == (2, 1)
    assert live.statistics("double")["execution_count"] == 1
    assert live.statistics("add_one")["execution_count"] == (1 if cached == "chain" else 3)


def test_deadline_of_a_call_ends_its_steps(start):
    def write(folder):
        Identity("endless", [("FP32", [4])], max_batch_size=8, parameters={"delay_us": 60000000}).write(folder)
        write_ensemble(folder, "waits", ensemble(ENDS, step("endless", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))

    live = start(write)
    refused = live.refusal("waits", protocol="grpc", client_timeout=0.2)
    assert "DEADLINE" in refused.status() or "Deadline" in refused.message()
    metrics.wait_until(live.server.address, lambda numbers: metrics.others_in_flight(numbers) == 0, "it ended")


# ---- many at once, and clients that leave --------------------------------------------------------

def request_bytes(model, name="IN", rows=1):
    body = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": [rows, 4],
                                   "data": [1, 2, 3, 4] * rows}]})
    return (f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


def write_slow(folder, **more):
    write_models(folder)
    Identity("slow", [("FP32", [4])], max_batch_size=8, parameters={"delay_us": 2000}).write(folder)
    chain = [step("double", {"x": "IN"}, {"y": "a"}), step("slow", {"INPUT0": "a"}, {"OUTPUT0": "b"}),
             step("add_one", {"x": "b"}, {"y": "OUT"})]
    write_ensemble(folder, "slow_chain", ensemble(ENDS, *chain, **more))


@pytest.mark.parametrize("limit", [0, 3])
def test_eight_hundred_requests_of_which_half_are_left(start, limit):
    live = start(lambda folder: write_slow(folder, scheduling=f"max_inflight_requests: {limit}\n"))
    clients = [http1.Connection(live.server.address) for _ in range(800)]
    for client in clients:
        client.send(request_bytes("slow_chain"))
    for client in clients[::2]:
        client.reset()
    for client in clients[1::2]:
        with client:
            answer = client.read_answer()
            assert answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [3, 5, 7, 9]
    assert numpy.array_equal(live.infer("chain", {"IN": ROW})["OUT"], ROW * 2 + 1)


def test_member_unloaded_under_load_fails_requests_with_503_alone(start):
    live = start(write_slow, "--model-control-mode", "explicit", "--load-model", "*")
    statuses, stop = set(), threading.Event()

    def ask():
        with http1.Connection(live.server.address) as client:
            while not stop.is_set():
                client.send(request_bytes("slow_chain"))
                statuses.add(client.read_answer().status)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for number in range(60):
        name = ("double", "slow", "add_one")[number % 3]
        live.http.unload_model(name)
        live.http.load_model(name)
    stop.set()
    for thread in threads:
        thread.join()
    assert 200 in statuses and statuses <= {200, 503}, statuses
    assert live.http.is_model_ready("slow_chain")


def test_client_that_leaves_cancels_the_member_that_runs(start):
    def write(folder):
        Identity("endless", [("FP32", [4])], max_batch_size=8, parameters={"delay_us": 60000000}).write(folder)
        write_ensemble(folder, "waits", ensemble(ENDS, step("endless", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))

    live = start(write)
    client = http1.Connection(live.server.address)
    client.send(request_bytes("waits"))
    metrics.wait_until(live.server.address, lambda numbers: metrics.others_in_flight(numbers) > 0, "it runs")
    client.reset()  # long before the member would have ended
    metrics.wait_until(live.server.address, lambda numbers: metrics.others_in_flight(numbers) == 0, "it ended")
    for model in ("waits", "endless"):
        assert live.statistics(model)["inference_stats"]["fail"]["count"] == 1


def test_server_that_stops_ends_what_an_ensemble_runs(start_server, tmp_path):
    folder = tmp_path / "models"
    Identity("endless", [("FP32", [4])], max_batch_size=8, parameters={"delay_us": 60000000}).write(folder)
    write_ensemble(folder, "waits", ensemble(ENDS, step("endless", {"INPUT0": "IN"}, {"OUTPUT0": "OUT"})))
    server = start_server("--model-repository", folder, "--drain-timeout", "100ms")
    with http1.Connection(server.address) as client:
        client.send(request_bytes("waits"))
        metrics.wait_until(server.address, lambda numbers: metrics.others_in_flight(numbers) > 0, "it runs")
        server.signal()
        assert server.wait_exit() == 0
