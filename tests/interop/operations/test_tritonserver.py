"""`sluice tritonserver`: the command lines that people have for Triton start a server that Triton's own clients
talk to, with Triton's defaults and what its flags promise."""
import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics, repository
from lib.ports import free_ports
from lib.server import SANITIZER, Server, binary

FREE_PORTS = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")


class TritonServer(Server):
    """A server with Triton's command line, whose log is text. `called`: a link to the program, under Triton's name."""

    def __init__(self, folder, args, called=None, env=None):  # pylint: disable=super-init-not-called
        self.folder, self.log_file = str(folder), os.path.join(folder, "log")
        self.expected_errors = []
        self.command = ([str(called)] if called else [binary(), "tritonserver"]) + [str(arg) for arg in args]
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.folder, env={**os.environ, **(env or {})})

    def wait_ready(self):
        self.wait_for(lambda: re.search(r" INFO ready$", self.log_text(), re.M), "a ready server")
        return self

    def wait_settled(self):
        """Loading has ended, well or badly."""
        self.wait_for(lambda: re.search(r" INFO ready$|loading has ended", self.log_text(), re.M), "the end of loading")
        return self

    def at(self, protocol):
        port = re.search(rf" listening {protocol}=\S*:(\d+)", self.log_text()).group(1)
        return f"127.0.0.1:{port}"

    def status(self, path, *fields, method="GET"):
        return http1.request(self.at("http"), method, path, b"", fields).status

    def check_log(self):
        text = self.log_text()
        assert not SANITIZER.search(text), text
        errors = [line for line in text.splitlines() if re.search(r"^\S+ ERROR ", line)]
        assert all(any(wanted in line for wanted in self.expected_errors) for line in errors), errors


@pytest.fixture
def start(start_server):
    return functools.partial(start_server, kind=TritonServer)


def tensor_of(module, value):
    tensor = module.InferInput("INPUT0", list(value.shape), "FP32")
    tensor.set_data_from_numpy(value)
    return tensor


def assert_infers(server, model="id_fp32"):
    """Over HTTP and gRPC, with Triton's clients; and the metrics count it."""
    for module, protocol in ((tritonclient.http, "http"), (tritonclient.grpc, "grpc")):
        value = numpy.array([1, 2, 3], numpy.float32)
        with contextlib.closing(module.InferenceServerClient(server.at(protocol))) as client:
            assert client.is_server_ready() and client.is_model_ready(model)
            assert (client.infer(model, [tensor_of(module, value)]).as_numpy("OUTPUT0") == value).all()
    assert metrics.read(server.at("metrics"))[f'nv_inference_request_success{{model="{model}",version="1"}}'] == 2


# The arguments as they are in manifests, with the folder and the ports of the test.
MANIFESTS = {
    "KServe": "--model-store={models} --grpc-port={grpc} --http-port={http} --allow-grpc=true --allow-http=true",
    "ModelMesh": "--model-repository={models} --model-control-mode=explicit --load-model=id_fp32"
                 " --strict-model-config=false --strict-readiness=false --allow-http=true --allow-sagemaker=false"
                 " --http-port={http} --grpc-port={grpc}",
    "chart of the server's repository": "--model-store={models} --model-control-mode=poll --repository-poll-secs=5"
                                        " --http-port={http} --grpc-port={grpc}",
    "chart of a cloud": "--model-repository={models} --log-verbose=0 --log-info=true --exit-on-error=true"
                        " --strict-model-config=False --http-port {http} --grpc-port {grpc}",
    "chart of an autoscaling guide": "--model-repository={models} --allow-metrics=TRUE --allow-gpu-metrics=false"
                                     " --backend-config=default-max-batch-size=8 --http-thread-count=2"
                                     " --pinned-memory-pool-byte-size=0 --http-port={http} --grpc-port={grpc}",
}


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifest_arguments_start_a_server(start, repositories, manifest):
    http, grpc = free_ports(2)
    line = MANIFESTS[manifest].format(models=repositories("default"), http=http, grpc=grpc)
    server = start(*line.split(), "--metrics-port=0").wait_ready()
    assert_infers(server)


def test_link_called_tritonserver_is_the_command(start, repositories, tmp_path):
    link = tmp_path / "tritonserver"
    link.symlink_to(binary())
    server = start("--model-repository", repositories("default"), *FREE_PORTS, called=link).wait_ready()
    assert_infers(server)
    with contextlib.closing(tritonclient.http.InferenceServerClient(server.at("http"))) as client:
        assert client.get_server_metadata()["name"] == "triton"


@pytest.fixture
def one_broken(tmp_path):
    repository.write("default", tmp_path / "some")
    models = tmp_path / "models"
    models.mkdir()
    shutil.copytree(tmp_path / "some" / "id_fp32", models / "id_fp32")
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "model.onnx").write_bytes(b"not a model")
    return models


def test_exit_on_error_ends_with_1(start, one_broken):
    server = start("--model-repository", one_broken, *FREE_PORTS)
    assert server.wait_exit() == 1
    assert "broken: " in server.log_text() and "--exit-on-error=false" in server.log_text()


def test_exit_on_error_false_serves_the_rest(start, one_broken):
    server = start("--model-repository", one_broken, "--exit-on-error=False", *FREE_PORTS).wait_settled()
    server.expected_errors.append("model=broken")
    assert server.status("/v2/health/ready") == 503 and server.status("/v2/models/id_fp32/ready") == 200
    loose = start("--model-repository", one_broken, "--exit-on-error=0", "--strict-readiness=off",
                  *FREE_PORTS).wait_settled()
    loose.expected_errors.append("model=broken")
    assert loose.status("/v2/health/ready") == 200
    assert_infers(loose)


def test_without_configuration_a_model_is_refused_if_asked(start, tmp_path):
    repository.write("onnx-only", tmp_path / "models")
    server = start("--model-repository", tmp_path / "models", "--disable-auto-complete-config", *FREE_PORTS)
    assert server.wait_exit() == 1
    assert "expected a config.pbtxt, as --disable-auto-complete-config was given" in server.log_text()


def test_model_config_name_selects_configuration(start, repositories, tmp_path):
    models = tmp_path / "models"
    for name in ("id_batch", "id_fp32"):
        shutil.copytree(os.path.join(repositories("default"), name), models / name)
    usual = (models / "id_batch" / "config.pbtxt").read_text()
    (models / "id_batch" / "configs").mkdir()
    (models / "id_batch" / "configs" / "small.pbtxt").write_text(
        re.sub(r"max_batch_size: *\d+", "max_batch_size: 3", usual))
    server = start("--model-repository", models, "--model-config-name=small", *FREE_PORTS).wait_ready()
    with contextlib.closing(tritonclient.http.InferenceServerClient(server.at("http"))) as client:
        assert client.get_model_config("id_batch")["max_batch_size"] == 3
    assert_infers(server)  # it has config.pbtxt only


def test_backend_config_is_of_models_that_say_nothing(start, tmp_path):
    repository.write("onnx-only", tmp_path / "models")
    name = sorted(os.listdir(tmp_path / "models"))[0]
    limited = start("--model-repository", tmp_path / "models", "--backend-config=onnxruntime,intra_op_thread_count=1",
                    "--backend-config=onnxruntime,default-max-batch-size=0", "--backend-config=other,key=value",
                    "--log-verbose=1", *FREE_PORTS).wait_ready()
    with contextlib.closing(tritonclient.http.InferenceServerClient(limited.at("http"))) as client:
        config = client.get_model_config(name)
    assert config["max_batch_size"] == 0
    assert config["parameters"]["intra_op_thread_count"] == {"string_value": "1"}
    wrong = start("--model-repository", tmp_path / "models",
                  "--backend-config=onnxruntime,intra_op_thread_count=many", *FREE_PORTS)
    assert wrong.wait_exit() == 1 and "intra_op_thread_count" in wrong.log_text()


def test_model_load_is_retried(start, one_broken):
    server = start("--model-repository", one_broken, "--model-load-retry-count=2", "--exit-on-error=false",
                   *FREE_PORTS).wait_settled()
    server.expected_errors.append("model=broken")
    assert server.log_text().count("model failed to load, and is tried again") == 2


def test_log_file_is_reopened(start, repositories, tmp_path):
    file = tmp_path / "sluice.log"
    server = start("--model-repository", repositories("default"), f"--log-file={file}", *FREE_PORTS)
    server.wait_for(lambda: file.exists() and " INFO ready\n" in file.read_text(), "a ready server")
    file.rename(tmp_path / "rotated.log")
    server.signal(signal.SIGHUP)
    server.wait_for(file.exists, "a new file")
    server.stop()
    assert "ended" in file.read_text() and "ended" not in (tmp_path / "rotated.log").read_text()
    assert server.log_text() == ""
    refused = start("--model-repository", repositories("default"), "--log-file=/nonexistent/log", *FREE_PORTS)
    assert refused.wait_exit() == 1 and "--log-file: /nonexistent/log: No such file" in refused.log_text()


def test_log_levels_are_switched_one_by_one(start, repositories):
    """Without info there is no line that says where the server listens: its ports are given."""
    http, grpc = free_ports(2)
    quiet = start("--model-repository", repositories("default"), "--log-info=false", "--log-warning=true",
                  f"--http-port={http}", f"--grpc-port={grpc}", "--metrics-port=0")
    plain = start("--model-repository", repositories("default"), *FREE_PORTS).wait_ready()
    verbose = start("--model-repository", repositories("default"), "--log-verbose=1", *FREE_PORTS).wait_ready()

    def is_ready():
        with contextlib.suppress(OSError):
            return http1.request(f"127.0.0.1:{http}", "GET", "/v2/health/ready").status == 200

    quiet.wait_for(is_ready, "a ready server")
    assert [[level in server.log_text() for level in (" INFO ", " DEBUG ")] for server in (quiet, plain, verbose)] == [
        [False, False], [True, False], [True, True]]


def test_restricted_api_needs_its_header(start, repositories):
    server = start("--model-repository", repositories("default"), *FREE_PORTS,
                   "--http-restricted-api=model-config,statistics:admin-key=very=secret",
                   "--http-restricted-api=health:probe=yes",
                   "--grpc-restricted-protocol=inference,health:Infer-Key=open").wait_ready()
    restricted = ("/v2/models/id_fp32/config", "/v2/models/id_fp32/stats", "/v2/models/stats")
    assert [server.status(path) for path in restricted] == [403, 403, 403]
    answer = http1.request(server.at("http"), "GET", "/v2/models/id_fp32/config")
    assert answer.status == 403
    assert answer.body == b'{"error":"This API is restricted, expecting header \'admin-key\'"}'
    for value, expected in (("very=secret", 200), ("very", 403), ("", 403)):
        assert [server.status(path, ("Admin-Key", value)) for path in restricted] == [expected] * 3
    assert server.status(restricted[0], ("admin-key", "very=secret"), ("admin-key", "very=secret")) == 403
    assert server.status("/v2/health/live") == 403 and server.status("/v2/health/live", ("probe", "yes")) == 200
    with contextlib.closing(tritonclient.grpc.InferenceServerClient(server.at("grpc"))) as client:
        with pytest.raises(InferenceServerException) as refused:
            client.is_server_live()
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        assert refused.value.message() == ("This protocol is restricted, expecting header"
                                           " 'triton-grpc-protocol-infer-key'")
        tensor = tensor_of(tritonclient.grpc, numpy.zeros(1, numpy.float32))
        with pytest.raises(InferenceServerException):
            client.infer("id_fp32", [tensor])
        open_header = {"triton-grpc-protocol-infer-key": "open"}
        assert client.is_server_live(headers=open_header)
        client.infer("id_fp32", [tensor], headers=open_header)
        assert client.get_server_metadata().name == "triton"  # not restricted


@pytest.mark.parametrize("text, reason", [
    ("nothing", "expected CATEGORY"), ("health", "expected CATEGORY"), (":k=v", "expected CATEGORY"),
    ("health:=v", "expected CATEGORY"), ("health:k=", "expected CATEGORY"),
    ("healthy:k=v", 'unknown category "healthy"'), ("health,health:k=v", "health has two headers"),
])
def test_restricted_api_bad_value_is_refused(start, repositories, text, reason):
    server = start("--model-repository", repositories("default"), f"--http-restricted-api={text}", *FREE_PORTS)
    assert server.wait_exit() == 2
    assert "--http-restricted-api: " in server.log_text() and reason in server.log_text()


def test_metrics_of_the_machine_can_be_left_out(start, repositories):
    with_them = start("--model-repository", repositories("default"), *FREE_PORTS).wait_ready()
    without = start("--model-repository", repositories("default"), "--allow-cpu-metrics=FALSE", *FREE_PORTS).wait_ready()
    of_machine = {"nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"}
    assert of_machine <= set(metrics.read(with_them.at("metrics")))
    assert not of_machine & set(metrics.read(without.at("metrics")))
    assert_infers(without)


def test_two_servers_share_a_port(start, repositories):
    http, grpc = free_ports(2)
    ports = [f"--http-port={http}", f"--grpc-port={grpc}", "--metrics-port=0"]
    shared = ["--reuse-http-port=true", "--reuse-grpc-port=true"]
    for server in [start("--model-repository", repositories("default"), *ports, *shared) for _ in range(2)]:
        server.wait_ready()
    alone = start("--model-repository", repositories("default"), *ports)
    assert alone.wait_exit() == 1 and "another process listens there" in alone.log_text()


def test_old_grpc_connection_is_told_to_go(start, repositories):
    """Calls of a client that never closes go on without an error, on a new connection."""
    server = start("--model-repository", repositories("default"), *FREE_PORTS, "--grpc-max-connection-age=100",
                   "--grpc-max-connection-age-grace=60000").wait_ready()

    def accepted():
        return metrics.read(server.at("metrics"))["sluice_accepted_connections_total"]
    tensor = tensor_of(tritonclient.grpc, numpy.zeros(1, numpy.float32))
    own, before = itertools.count(1), accepted()
    with contextlib.closing(tritonclient.grpc.InferenceServerClient(server.at("grpc"))) as client:
        def has_new_connections():
            client.infer("id_fp32", [tensor])
            return accepted() - before - next(own) >= 3
        server.wait_for(has_new_connections, "new connections")


def test_files_of_tls_alone_turn_nothing_on(start, repositories, tmp_path):
    (tmp_path / "c").write_text("not a certificate")
    files = [f"--grpc-server-cert={tmp_path}/c", f"--grpc-server-key={tmp_path}/c"]
    server = start("--model-repository", repositories("default"), *files, *FREE_PORTS).wait_ready()
    assert_infers(server)
    on = start("--model-repository", repositories("default"), *files, "--grpc-use-ssl=1", *FREE_PORTS)
    assert on.wait_exit() == 1 and "--grpc-tls-cert" in on.log_text()


def test_http_limit_is_of_http_alone(start, repositories):
    server = start("--model-repository", repositories("default"), "--http-max-input-size=1000", *FREE_PORTS).wait_ready()
    value = numpy.zeros(1000, numpy.float32)
    for module, protocol in ((tritonclient.http, "http"), (tritonclient.grpc, "grpc")):
        tensor = tensor_of(module, value)
        with contextlib.closing(module.InferenceServerClient(server.at(protocol))) as client:
            if protocol == "http":
                with pytest.raises(InferenceServerException) as refused:
                    client.infer("id_fp32", [tensor])
                assert refused.value.status() == "413"
            else:
                assert client.infer("id_fp32", [tensor]).as_numpy("OUTPUT0").size == 1000
    with contextlib.closing(tritonclient.http.InferenceServerClient(server.at("http"))) as client:
        client.infer("id_fp32", [tensor_of(tritonclient.http, numpy.zeros(1, numpy.float32))])


@pytest.mark.parametrize("args, env, says", [
    (["--allow-vertex-ai=true"], {}, "Vertex AI needs AIP_HEALTH_ROUTE in the environment"),
    ([], {"AIP_MODE": "PREDICTION", "AIP_HEALTH_ROUTE": "/h"}, "Vertex AI needs AIP_PREDICT_ROUTE"),
    (["--model-namespacing=true"], {}, "--model-namespacing: not supported"),
    (["--http-port=one"], {}, "--http-port: expected a whole number"),
    (["--load-model=id_fp32"], {}, "--load-model needs --model-control-mode=explicit"),
    (["models"], {}, "one argument too many"),
])
def test_bad_flags_end_with_2(start, repositories, args, env, says):
    server = start("--model-repository", repositories("default"), *args, env=env)
    assert server.wait_exit() == 2
    assert says in server.log_text() and "Try: sluice tritonserver --help" in server.log_text()


def test_vertex_ai_starts_by_its_environment_alone(start, repositories):
    """As its containers are started: with variables, and no flag."""
    port, metrics_port = free_ports(2)
    server = start(f"--metrics-port={metrics_port}", env={
        "AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": str(port), "AIP_HEALTH_ROUTE": "/healthy",
        "AIP_PREDICT_ROUTE": "/run", "AIP_STORAGE_URI": repositories("default")}).wait_ready()
    assert server.at("http") == f"127.0.0.1:{port}" and "listening grpc" not in server.log_text()
    assert server.status("/healthy") == 200
    assert server.status("/run", ("X-Vertex-Ai-Triton-Redirect", "v2/models/id_fp32/ready"), method="POST") == 200


def test_sagemaker_starts_by_flag_and_environment(start, repositories):
    port, = free_ports(1)
    server = start("--model-repository", repositories("default"), "--allow-sagemaker=true", f"--sagemaker-port={port}",
                   "--allow-http=false", "--allow-grpc=false", "--allow-metrics=false",
                   env={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "id_fp32"}).wait_ready()
    assert server.status("/ping") == 200
    tensor = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}
    answer = http1.request(server.at("http"), "POST", "/invocations", json.dumps({"inputs": [tensor]}).encode())
    assert answer.status == 200 and json.loads(answer.body)["outputs"][0]["data"] == [1.0]


def test_flag_without_effect_is_one_line(start, repositories):
    server = start("--model-repository", repositories("default"), "--enable-peer-access=true",
                   "--cuda-memory-pool-byte-size=0:67108864", *FREE_PORTS).wait_ready()
    lines = [line for line in server.log_text().splitlines() if "flag without effect" in line]
    assert len(lines) == 2 and all("models run on CPUs" in line for line in lines)
    assert_infers(server)


def test_help_lists_every_flag():
    done = subprocess.run([binary(), "tritonserver", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n  --") == 91 + 4 and done.stderr == ""  # four of our own
