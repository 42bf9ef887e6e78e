"""What a first try gets wrong: each row is a command, its exit code and its exact words. A message
names the thing, the place and what to do."""
import re
import resource
import subprocess

import onnx
import pytest
from onnx import TensorProto, helper

from lib import http1
from lib.server import binary, is_sanitized

pytestmark = pytest.mark.plain


def model(name="add", inputs=2):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "ab"[:inputs]]
    total = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["n", 4])
    node = helper.make_node("Add", ["a", "ab"[inputs - 1]], ["sum"], name="first")
    graph = helper.make_graph([node], name, values, [total])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def external():
    """Adds a constant whose values are in a file of their own."""
    built = model(inputs=1)
    built.graph.node[0].input[1] = "weights"
    constant = built.graph.initializer.add(name="weights", data_type=TensorProto.FLOAT, dims=[4])
    constant.data_location = TensorProto.EXTERNAL
    constant.external_data.add(key="location", value="weights.bin")
    return built


def changed(change):
    built = model()
    change(built)
    return built


def custom_operator(built):
    built.graph.node[0].domain = "com.example"
    built.opset_import.add(domain="com.example", version=1)


def files():
    """name → contents."""
    good = model().SerializeToString()

    def dumped(change):
        return changed(change).SerializeToString()
    return {
        "add.onnx": good,
        "cut.onnx": good[:60],
        "empty.onnx": b"",
        "noise.onnx": b"\xff\xfe\xfd" * 100,
        "page.onnx": b"<!DOCTYPE html>\n<html><body>Not found</body></html>",
        "lfs.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "zip.onnx": b"PK\x03\x04" + b"\0" * 60,
        "future.onnx": dumped(lambda m: setattr(m, "ir_version", 99)),
        "opset.onnx": dumped(lambda m: setattr(m.opset_import[0], "version", 99)),
        "operator.onnx": dumped(lambda m: setattr(m.graph.node[0], "op_type", "Adx")),
        "custom.onnx": dumped(custom_operator),
        "type.onnx": dumped(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 99)),
        "external.onnx": external().SerializeToString(),
        "net.pt": b"PK\x03\x04",
        "forest.pkl": b"\x80\x04",
        "notes.txt": b"hello",
        "bare/notes.txt": b"hello",
        "flat/add.onnx": good,
        "flat/sum.onnx": good,
        "flat/README.md": b"not a model",
        "models/add/1/model.onnx": good,
        "key.yaml": b"models: [add.onnx]\nhtpp: 127.0.0.1:0\n",
        "type.yaml": b"models: [add.onnx]\nworkers: many\n",
        "broken.yaml": b"models: [add.onnx\nhttp: 127.0.0.1:0\n",
    }


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    for name, contents in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)
    return folder


SERVE = "sluice serve: "
FAILED = SERVE + "no model could be loaded (--keep-going serves without): "
TRY = "\nTry: sluice serve --help"
ROWS = [
    ("empty.onnx", 1,
     FAILED + "empty: empty.onnx is empty"),
    ("page.onnx", 1,
     FAILED + "page: page.onnx is a web page, not a model: the download went wrong"),
    ("lfs.onnx", 1,
     FAILED + "lfs: lfs.onnx is a Git LFS pointer, not the model itself: run `git lfs pull` where it "
              "was cloned"),
    ("zip.onnx", 1,
     FAILED + "zip: zip.onnx is a ZIP archive, as PyTorch and Keras write them, not an ONNX model: "
              "export the model to ONNX (torch.onnx.export)"),
    ("noise.onnx", 1,
     FAILED + "noise: noise.onnx is not an ONNX model"),
    ("cut.onnx", 1,
     FAILED + "cut: cut.onnx ends in the middle: it has 60 bytes and needs at least 102; copy it again"),
    ("future.onnx", 1,
     FAILED + "future: future.onnx was written by a newer ONNX than this ONNX Runtime (VERSION) knows: "
              "its IR version is 99, at most N is known; set model.ir_version = N before onnx.save, or "
              "install a newer ONNX Runtime"),
    ("opset.onnx", 1,
     FAILED + "opset: opset.onnx needs opset 99 of ai.onnx; this ONNX Runtime (VERSION) knows up to N: "
              "export it with opset_version=N, or install a newer ONNX Runtime"),
    ("operator.onnx", 1,
     FAILED + 'operator: operator.onnx needs the operator Adx (node "first"), which opset 17 does not '
              "have (ONNX Runtime 1.31.1)"),
    ("custom.onnx", 1,
     FAILED + "custom: custom.onnx needs the operator Add of the domain com.example, which ONNX Runtime"
              " (VERSION) does not have: name its library in config.pbtxt (model_operations)"),
    ("type.onnx", 1,
     FAILED + "type: type.onnx has a tensor of element type 99, which ONNX does not define: the file is"
              " damaged, or newer than this ONNX Runtime"),
    ("external.onnx", 1,
     FAILED + "external: ./weights.bin: cannot be read: No such file or directory; external.onnx keeps "
              "weights there: copy it beside the model"),
    ("empty.onnx page.onnx", 1,
     FAILED + "2 failed, see above: empty, page"),
    ("net.pt", 1,
     SERVE + "net.pt is a PyTorch file: export the model with torch.onnx.export"),
    ("forest.pkl", 1,
     SERVE + "forest.pkl is a Python pickle: convert the model with skl2onnx"),
    ("notes.txt", 1,
     SERVE + "notes.txt: no installed backend knows files of this kind (installed in --backend-dir: "
             "BACKENDS)"),
    ("ad.onnx", 1,
     SERVE + 'ad.onnx: No such file or directory; did you mean "add.onnx"?'),
    ("add.onnx add.onnx", 1,
     SERVE + 'two models are called "add": add.onnx and add.onnx; give one another name with NAME=PATH'),
    ("bare", 1,
     SERVE + "bare: neither a model nor a directory of models; expected bare/MODEL.onnx, "
             "bare/MODEL/VERSION/model.onnx or bare/VERSION/model.onnx, VERSION being a number from 1 "
             "on, with a config.pbtxt in the model's directory where one is needed"),
    ("add.onnx --htp 127.0.0.1:0", 2,
     SERVE + "unknown flag --htp; did you mean --http?" + TRY),
    ("add.onnx --allow-client-shared-memory", 2,
     SERVE + "there is no flag --allow-client-shared-memory: write --allow-client-shm true" + TRY),
    ("add.onnx --port 9000", 2,
     SERVE + "there is no flag --port: write --http HOST:PORT" + TRY),
    ("add.onnx -p 9000", 2,
     SERVE + "there is no flag -p: write --http HOST:PORT" + TRY),
    ("https://models.example/add.onnx", 1,
     SERVE + "https://models.example/add.onnx: a URL is no path: download the model, and name the file"),
    ("add.onnx --http 192.0.2.1:0", 1,
     SERVE + "--http 192.0.2.1:0: cannot listen on 192.0.2.1:0: bind: Cannot assign requested address; this machine "
             "does not have that address (0.0.0.0: all that it has)"),
    ("add.onnx --log-level warn", 2,
     SERVE + '--log-level: expected one of error|warning|info|debug, got "warn"' + TRY),
    ("add.onnx --workers many", 2,
     SERVE + '--workers: expected a whole number from 0 to 1024, got "many"' + TRY),
    ("add.onnx --max-body-size 10XB", 2,
     SERVE + '--max-body-size: expected a size such as 512, 64KiB or 2GB, got "10XB"' + TRY),
    ("add.onnx --drain-timeout 5fortnights", 2,
     SERVE + '--drain-timeout: expected a time such as 250ms, 30s or 2m, got "5fortnights"' + TRY),
    ("add.onnx --http 8000", 2,
     SERVE + ('--http 8000: "8000" is not an address: the port is missing. Expected HOST:PORT '
             "(127.0.0.1:8000), [IPV6]:PORT, :PORT for all addresses of this machine, or unix:/PATH") + TRY),
    ("add.onnx --http 127.0.0.1:99999", 2,
     SERVE + ('--http 127.0.0.1:99999: "127.0.0.1:99999" is not an address: the port is a number from 0'
             " to 65535. Expected HOST:PORT (127.0.0.1:8000), [IPV6]:PORT, :PORT for all addresses of "
             "this machine, or unix:/PATH") + TRY),
    ("add.onnx --http none --grpc none", 2,
     SERVE + "there is nowhere to listen: --http, --grpc or --mip needs an address" + TRY),
    ("add.onnx --http https://127.0.0.1:0", 2,
     SERVE + "--http https://127.0.0.1:0: TLS needs --http-tls-cert FILE and --http-tls-key FILE" + TRY),
    ("add.onnx --http", 2,
     SERVE + ("--http needs a value, and --metrics looks like the next flag (a value that begins with "
             "dashes is written --http=VALUE)") + TRY),
    ("add.onnx --mip tcp://127.0.0.1:0", 2,
     SERVE + ('--mip: "tcp://127.0.0.1:0": it names no model; expected tcp://HOST:PORT=MODEL, '
             "unix:///PATH=MODEL or one of them with MODEL:VERSION") + TRY),
    ("add.onnx --mip tcp://127.0.0.1:0=ad", 1,
     SERVE + '--mip tcp://127.0.0.1:0=ad: unknown model "ad"; did you mean "add"?'),
    ("add.onnx --load-model add", 1,
     SERVE + "--load-model needs --model-control-mode explicit"),
    ("--config key.yaml", 2,
     SERVE + 'key.yaml:2: unknown field "htpp"; did you mean "http"?' + TRY),
    ("--config type.yaml", 2,
     SERVE + 'type.yaml:2: workers: expected a whole number from 0 to 1024, got "many"' + TRY),
    ("--config broken.yaml", 2,
     SERVE + "broken.yaml:2: not YAML: did not find expected ',' or ']', while parsing a flow sequence" + TRY),
    ("--config none.yaml", 2,
     SERVE + "none.yaml: cannot open: No such file or directory" + TRY),
    ("--model-repository nowhere", 1,
     SERVE + "nowhere: No such file or directory"),
    ("add.onnx --backend-dir nowhere", 1,
     SERVE + "add.onnx: no installed backend knows files of this kind (installed in --backend-dir: "
             "none; nowhere: No such file or directory)"),
    ("add.onnx --keys nokeys.yaml", 1,
     SERVE + "--keys: nokeys.yaml: No such file or directory"),
]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(here, *command):
    """It ends within two seconds; CPU time is counted, as the machine may be busy."""
    before = cpu_seconds()
    done = subprocess.run([binary(), *command], cwd=here, capture_output=True, timeout=http1.PATIENCE,
                          check=False)
    assert cpu_seconds() - before < 2 or is_sanitized()
    return done.returncode, done.stderr.decode()


def words(text):
    """Without the lines of the log, and without what depends on the libraries of the build."""
    lines = [line for line in text.splitlines() if not re.match(r"\d{4}-\d\d-\d\dT", line)]
    text = re.sub(r"ONNX Runtime \(\d+\.\d+\.\d+\)", "ONNX Runtime (VERSION)", "\n".join(lines))
    text = re.sub(r"(at most |up to |ir_version = |opset_version=)\d+", r"\1N", text)
    return re.sub(r"--backend-dir: identity[a-z, ]*", "--backend-dir: BACKENDS", text)


@pytest.mark.parametrize("arguments, code, expected", ROWS, ids=[row[0] for row in ROWS])
def test_serve_says_what_is_wrong(here, arguments, code, expected):
    listen = () if "--http" in arguments else ("--http", "127.0.0.1:0")
    listen += () if "--grpc" in arguments else ("--grpc", "none")
    got, text = run(here, "serve", *arguments.split(), "--metrics", "none", *listen)
    assert (got, words(text)) == (code, expected)


def test_port_in_use_names_the_address(here, start_server):
    server = start_server("--model-repository", here / "models")
    code, text = run(here, "serve", "add.onnx", "--http", server.address, "--grpc", "none",
                     "--metrics", "none")
    assert (code, words(text)) == (
        1, f"sluice serve: --http {server.address}: cannot listen on {server.address}: bind: Address"
           " already in use; another process listens there: choose another port (0: a free one)")


def test_keep_going_serves_without_a_model(here, start_server):
    server = start_server(here / "empty.onnx", wait="loaded")  # which gives --keep-going
    server.expect_error("model failed to load")
    answer = http1.request(server.address, "GET", "/v2/models/empty/ready")
    assert answer.status == 503
    assert b"empty.onnx is empty" in http1.request(server.address, "GET", "/v2/models/empty").body


def test_one_good_model_is_enough_to_stay(here, start_server):
    server = start_server(here / "empty.onnx", here / "add.onnx", wait="listening")
    server.expect_error("model failed to load")
    server.wait_for(lambda: "loading has ended" in server.log_text(), "the end of loading")
    assert http1.request(server.address, "GET", "/v2/models/add/ready").status == 200


def test_folder_of_model_files(here, start_server):
    server = start_server(here / "flat")
    for name in ("add", "sum"):
        assert http1.request(server.address, "GET", f"/v2/models/{name}/ready").status == 200


def test_http_can_be_off(here, start_server):
    server = start_server(here / "add.onnx", listen=("none",), grpc=("127.0.0.1:0",), wait="nothing")
    server.wait_for(lambda: "grpc" in server.log_text(), "a listener")
