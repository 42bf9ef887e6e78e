"""Latencies under Triton's names: --metrics-config, and the buckets of a model in its configuration."""
import re

import numpy
import pytest
import tritonclient.grpc

from lib import http1, metrics, repository

LABELS = '{model="id_fp32",version="1"}'
FIRST = "nv_inference_first_response_histogram_ms"
SUMMARIES = ["nv_inference_request_summary_us", "nv_inference_queue_summary_us",
             "nv_inference_compute_input_summary_us", "nv_inference_compute_infer_summary_us",
             "nv_inference_compute_output_summary_us"]
COUNTERS = ["nv_inference_request_duration_us", "nv_inference_queue_duration_us",
            "nv_inference_compute_input_duration_us", "nv_inference_compute_infer_duration_us",
            "nv_inference_compute_output_duration_us"]


@pytest.fixture
def start(start_server, repositories):
    def begin(*settings, models=None):
        flags = [flag for setting in settings for flag in ("--metrics-config", setting)]
        return start_server("--model-repository", models or repositories("default"), *flags, grpc=("127.0.0.1:0",))
    return begin


def infer(server, times, model="id_fp32"):
    tensor = tritonclient.grpc.InferInput("INPUT0", [1], "FP32")
    tensor.set_data_from_numpy(numpy.zeros(1, numpy.float32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        for _ in range(times):
            client.infer(model, [tensor])


def page(server, accept="text/plain"):
    return http1.request(server.address, "GET", "/metrics", b"", (("Accept", accept),)).body.decode()


def test_defaults_are_counters_alone(start):
    server = start()
    infer(server, 2)
    numbers, text = metrics.read(server.address), page(server)
    assert all(name + LABELS in numbers for name in COUNTERS)
    assert "summary_us" not in text and FIRST not in text
    assert "nv_cache_" not in text  # of models with a response cache, and there is none


def test_counters_of_times_can_be_left_out(start):
    server = start("counter_latencies=OFF")
    infer(server, 2)
    numbers = metrics.read(server.address)
    assert not any(name.startswith(tuple(COUNTERS)) for name in numbers)
    assert numbers["nv_inference_request_success" + LABELS] == 2
    stats = http1.request(server.address, "GET", "/v2/models/id_fp32/stats").body
    assert b'"success"' in stats  # which is not of metrics


def test_first_responses_are_counted_in_buckets(start):
    server = start("histogram_latencies=true")
    infer(server, 3)
    numbers = metrics.read(server.address)
    found = re.findall(rf'{FIRST}_bucket{{model="id_fp32",version="1",le="([^"]+)"}} (\d+)', page(server))
    assert [bound for bound, _ in found] == ["100.0", "500.0", "2000.0", "5000.0", "+Inf"]
    assert [int(n) for _, n in found] == sorted(int(n) for _, n in found) and int(found[-1][1]) == 3
    assert numbers[f"{FIRST}_count{LABELS}"] == 3 and numbers[f"{FIRST}_sum{LABELS}"] > 0


def test_buckets_of_a_model(start, tmp_path):
    model = repository.Identity("id_fp32", [("FP32", [-1])], more="model_metrics { metric_control {"
                                f' metric_identifier {{ family: "{FIRST}" }}'
                                " histogram_options { buckets: [ 0.5, 2, 1000000 ] } } }\n")
    model.write(tmp_path / "models")
    server = start("histogram_latencies=1", models=tmp_path / "models")
    infer(server, 1)
    found = re.findall(rf'{FIRST}_bucket{{model="id_fp32",version="1",le="([^"]+)"}} (\d+)', page(server))
    assert [bound for bound, _ in found] == ["0.5", "2.0", "1000000.0", "+Inf"] and found[2][1] == "1"


@pytest.mark.parametrize("control, says", [
    ('metric_identifier { family: "nv_other" }', "nv_other"),
    ("histogram_options { buckets: [ 1 ] }", "has no metric_identifier with a family"),
    (f'metric_identifier {{ family: "{FIRST}" }} histogram_options {{ buckets: [ 2, 1 ] }}', "ascending"),
    (f'metric_identifier {{ family: "{FIRST}" }} histogram_options {{ buckets: [ -1 ] }}', "above 0"),
])
def test_wrong_buckets_fail_their_model_alone(start_server, tmp_path, control, says):
    models = tmp_path / "models"
    repository.Identity("id_fp32", [("FP32", [-1])]).write(models)
    repository.Identity("wrong", [("FP32", [-1])],
                        more=f"model_metrics {{ metric_control {{ {control} }} }}\n").write(models)
    server = start_server("--model-repository", models, wait="loaded", grpc=("127.0.0.1:0",))
    server.expect_error("wrong")
    assert says in server.log_text() and "model_metrics.metric_control" in server.log_text(), server.log_text()
    assert http1.request(server.address, "GET", "/v2/models/id_fp32/ready").status == 200


def test_summaries_have_quantiles_of_the_last_minute(start):
    server = start("summary_latencies=true")
    empty = page(server)
    assert 'nv_inference_queue_summary_us{model="id_fp32",version="1",quantile="0.5"} NaN' in empty
    infer(server, 20)
    numbers = metrics.read(server.address)
    for name, counter in zip(SUMMARIES, COUNTERS):
        assert numbers[f"{name}_count{LABELS}"] == 20
        assert numbers[f"{name}_sum{LABELS}"] == numbers[counter + LABELS]
        values = [numbers[f'{name}{{model="id_fp32",version="1",quantile="{quantile}"}}']
                  for quantile in ("0.5", "0.9", "0.95", "0.99", "0.999")]
        assert values == sorted(values) and values[0] >= 0, name
    request = numbers['nv_inference_request_summary_us{model="id_fp32",version="1",quantile="0.999"}']
    assert 0 < request <= numbers["nv_inference_request_duration_us" + LABELS] * 1.07 + 1


def test_quantiles_are_chosen(start):
    server = start("summary_latencies=true", "summary_quantiles=0.25:0.05,1:0", "counter_latencies=false")
    infer(server, 1)
    found = re.findall(r'nv_inference_queue_summary_us\{model="id_fp32",version="1",quantile="([^"]+)"', page(server))
    assert found == ["0.25", "1"]
    assert "# TYPE nv_inference_queue_summary_us summary" in page(server, "application/openmetrics-text")


@pytest.mark.parametrize("setting, says", [
    ("counter_latencies", "expected KEY=true"), ("counter_latencies=maybe", "expected KEY=true"),
    ("times=true", 'got "times"'), ("summary_quantiles=", "expected QUANTILE:ERROR"),
    ("summary_quantiles=0.5", "expected QUANTILE:ERROR"), ("summary_quantiles=2:0.1", "expected QUANTILE:ERROR"),
    ("summary_quantiles=nan:0.1", "expected QUANTILE:ERROR"), ("summary_quantiles=0.5:0.1,,", "expected QUANTILE:ERROR"),
])
def test_wrong_metrics_config_is_refused(start_server, repositories, setting, says):
    server = start_server("--model-repository", repositories("default"), "--metrics-config", setting, wait="nothing")
    assert server.wait_exit() == 2
    assert "--metrics-config: " in server.log_text() and says in server.log_text(), server.log_text()
