"""Metrics that models in Python define: what the page /metrics has of them, and what is refused."""

import prometheus_client.parser
import pytest

from lib import http1, python_models
from lib.python_models import DOES, FLAGS, Client, parameter

UNBATCHED = DOES.replace("max_batch_size: 8\n", "")


@pytest.fixture
def running(start_server, tmp_path):
    def run(*flags, **models):
        for name, config in models.items():
            python_models.write(tmp_path / "models", name, "metrics", config)
        python_models.write(tmp_path / "models", "other", "does", DOES)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",))
    return run


def page(server):
    """The samples of the models' metrics: (name, sorted labels) → value."""
    text = http1.request(server.address, "GET", "/metrics").body.decode()
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in prometheus_client.parser.text_string_to_metric_families(text) for sample in family.samples
            if not sample.name.startswith(("nv_", "sluice_", "process_"))}


def counter(model):
    return "words_total", (("model", model), ("odd", 'a "b"\n'))


def test_metrics_are_on_the_page(running):
    server = running(model=DOES)
    client = Client(server)
    assert page(server)[counter("model")] == 0
    assert client.ask("model", "count:2") == "2.0" and client.ask("model", "count:0.5") == "2.5"
    assert client.ask("model", "level:-3") == "-2.5"
    for size in (1, 2, 3, 100):
        client.ask("model", f"observe:{size}")
    of_model = ("model", "model")
    expected = {counter("model"): 2.5, ("level", ()): -2.5, ("sizes_sum", (of_model,)): 106,
                ("sizes_count", (of_model,)): 4}
    for bound, n in (("1.0", 1), ("2.5", 2), ("10.0", 3), ("+Inf", 4)):
        expected["sizes_bucket", (("le", bound), of_model)] = n
    assert page(server) == expected
    text = http1.request(server.address, "GET", "/metrics").body.decode()
    assert "# HELP words_total words that came in\n# TYPE words_total counter\n" in text
    assert "# TYPE sizes histogram\n" in text
    openmetrics = http1.request(server.address, "GET", "/metrics", fields=[("Accept", "application/openmetrics-text")])
    assert b"# TYPE words counter\nwords_total{" in openmetrics.body


def test_what_instances_and_models_count_adds_up(running):
    server = running(model=DOES + "instance_group { count: 3 }\n", second=DOES)
    client = Client(server)
    for _ in range(30):
        client.ask("model", "count:1")
    client.ask("second", "count:1")
    client.ask("model", "level:1")
    assert client.ask("second", "level:2") == "2.5"
    got = page(server)
    assert got[counter("model")] == 30 and got[counter("second")] == 1 and got["level", ()] == 2.5


def test_threads_of_decoupled_models_count(running):
    server = running(model=UNBATCHED + "model_transaction_policy { decoupled: true }\n")
    url = "/v2/models/model/generate"
    for _ in range(20):
        assert http1.request(server.address, "POST", url, b'{"DO": ["count:1"]}').status == 200
    assert page(server)[counter("model")] == 20


def test_metrics_stay_when_the_worker_is_started_again(running):
    server = running(model=DOES)
    server.expect_error("worker of instance 0")
    client = Client(server)
    client.ask("model", "count:3")
    before = page(server)
    client.error_of("model", "end")
    assert page(server) == before
    python_models.wait_restarted(server, client, "model", "count:0")
    assert client.ask("model", "count:1") == "4.0"
    assert page(server).keys() == before.keys()


def test_metrics_are_gone_with_their_model(running):
    server = running("--model-control-mode", "explicit", "--load-model", "*", model=DOES, second=DOES)
    client = Client(server)
    client.ask("model", "count:3")
    client.client.load_model("model")  # nothing has changed: the same worker, or another that opens the same
    client.client.unload_model("model")
    server.wait_for(lambda: counter("model") not in page(server), "a page without the model")
    assert page(server)[counter("second")] == 0 and ("level", ()) in page(server)
    client.client.unload_model("second")
    server.wait_for(lambda: not page(server), "a page without metrics of models")
    client.client.load_model("model")
    assert page(server)[counter("model")] == 0


REFUSED = {
    "Family('words_total', '', Family.GAUGE)": "metric family words_total is a counter already, and cannot be a gauge",
    "Family('nv_inference_count', '', Family.COUNTER)": "the server's own",
    "Family('sizes_sum', '', Family.COUNTER)": "family sizes has samples of the same name",
    "Family('a b', '', Family.COUNTER)": "a name has letters",
    "Family('x', '', 7)": "7 is no kind",
    "Family(7, '', Family.COUNTER)": "a name must be a text",
    "Family('x', 'y' * 2000, Family.COUNTER)": "at most 1024 bytes",
    "self.counters.Metric({'le:': '1'})": "is no name of a label",
    "self.counters.Metric({'a': 'x' * 2000})": "at most 1024 bytes together",
    "self.counters.Metric([1])": "labels must be a dict",
    "self.counters.Metric({}, [1])": "a counter has no buckets",
    "self.sizes.Metric()": "a histogram has 1 to 100 buckets",
    "self.sizes.Metric({}, [2, 1])": "buckets must be finite and increase",
    "self.counter.increment(-1)": "values that are finite and not negative",
    "self.counter.set(1)": "only a gauge can be set",
    "self.gauge.observe(1)": "only a histogram observes",
    "self.size.value()": "a histogram has no single value",
    "self.size.observe(float('nan'))": "finite values",
}


def test_metrics_that_do_not_fit_are_errors_of_the_model(running):
    server = running(model=DOES)
    client = Client(server)
    pid = [worker for worker in python_models.workers(server.pid)]
    before = page(server)
    for code, expected in REFUSED.items():
        assert expected in client.error_of("model", f"call:{code}"), code
    assert "1000 metrics already" in client.error_of("model", "many:1001")
    assert client.ask("other", "fine") == "fine"
    assert {key: value for key, value in page(server).items() if key[0] != "many"} == before
    assert sorted(python_models.workers(server.pid)) == sorted(pid)


def test_number_of_metrics_of_all_models_is_limited(running):
    models = {f"model{i}": DOES for i in range(5)}
    server = running(**models)
    client = Client(server)
    errors = []
    for i, name in enumerate(models):
        errors.append(client.error_of(name, "many:1001") if i == 0 else
                      client.error_of(name, f"call:[Family('f{i}', '', Family.GAUGE).Metric(dict(n=n)) for n in range(1100)]"))
    assert all("1000 metrics already" in error for error in errors[:3])
    assert "at most 4000 are allowed" in errors[4]
    assert len(page(server)) <= 4000
    assert client.ask("model0", "count:1") == "1.0" and client.ask("other", "fine") == "fine"


@pytest.mark.parametrize("message", ["75, struct.pack('<IBd', 7, 0, 1)", "76, struct.pack('<II', 1, 9)",
                                     "74, struct.pack('<III', 1, 9, 0)", "73, bytes(3)"])
def test_messages_about_metrics_that_do_not_fit_end_the_worker(start_server, tmp_path, message):
    python = python_models.hostile(tmp_path, f"ready(); message({message})")
    config = DOES + parameter("python", python) + parameter("execute_timeout_s", "1")
    python_models.write(tmp_path / "models", "hostile", "does", config)
    python_models.write(tmp_path / "models", "does", "does", DOES)
    server = start_server("--model-repository", tmp_path / "models", *FLAGS)
    server.expect_error("worker of instance 0")
    client = Client(server)
    assert "broke the protocol" in client.error_of("hostile", "fine") and client.ask("does", "fine") == "fine"
