"""What every test over a live server may ask for."""
import contextlib
import itertools
import os
import resource

import pytest

# Before anything loads gRPC, whose own care for processes that fork ends some of those that a test with
# a loop of it starts; they go on to another program at once.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from lib import backends, echo, idle_connections, repository
from lib.gateway import IN_PROCESS
from lib.picker import Picker
from lib.server import Server


def pytest_collection_modifyitems(items):
    """Where several processes share the tests, those of a file stay together, as do those of a
    script: they share a server."""
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        # Envoy has no sanitizer's runtime, so that there is no picker for it in those builds (cmake/envoy.cmake).
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        parts = itertools.chain.from_iterable(value if isinstance(value, tuple) else [value] for value in params)
        if any(isinstance(part, str) and part == IN_PROCESS for part in parts):
            item.add_marker(pytest.mark.programs)
        if "interop" in item.path.parts and hasattr(item.module, "is_sanitized") and not any(
                mark.name in ("plain", "programs") for mark in item.iter_markers()):
            raise pytest.UsageError(f"{item.path}: what it leaves out under a sanitizer is run by nothing: mark it `plain`")


@pytest.fixture(scope="module")
def echoes():
    """Three servers that tell what they were sent."""
    with echo.three() as started:
        yield started


@pytest.fixture(scope="session")
def repositories(tmp_path_factory):
    """kind → folder of that repository, written when first asked for."""
    written = {}

    def find(kind):
        if kind not in written:
            written[kind] = repository.write(
                kind, os.path.join(tmp_path_factory.mktemp("models"), kind))
        return written[kind]
    return find


@pytest.fixture(scope="session")
def default_server(tmp_path_factory, repositories):
    """The server that all tests share which need none of their own."""
    server = Server(tmp_path_factory.mktemp("server"),
                    ["--model-repository", repositories("default")])
    with server:
        yield server


@pytest.fixture
def server(default_server):
    """The shared server; nothing may be in flight or held when the test has ended."""
    assert default_server.process.poll() is None, default_server.log_text()
    yield default_server
    default_server.wait_at_rest()
    default_server.check_log()


@pytest.fixture(scope="session")
def client_models(tmp_path_factory, repositories):
    """The server that real clients talk to: over TCP and a Unix socket, identity and ONNX models."""
    folder = tmp_path_factory.mktemp("clients")
    server = Server(folder, ["--model-repository", repositories("default"),
                             "--model-repository", repositories("onnx-only")],
                    listen=("127.0.0.1:0", f"unix:{folder}/socket"),
                    grpc=("127.0.0.1:0", f"unix:{folder}/grpc.socket"))
    with server:
        yield server


@pytest.fixture
def client_server(client_models):
    """The same for one test; nothing may be in flight or held when it has ended."""
    assert client_models.process.poll() is None, client_models.log_text()
    yield client_models
    client_models.wait_at_rest()
    client_models.check_log()


@pytest.fixture
def start_server(tmp_path):
    """Starts servers of the test's own: start_server(flag, …, listen=…), of the class `kind`. They are ended with
    SIGTERM, and checked, when the test has not ended them."""
    started = []
    counter = itertools.count()

    def start(*args, kind=Server, **options):
        folder = tmp_path / f"server{next(counter)}"
        folder.mkdir()
        started.append(kind(folder, args, **options))
        return started[-1]
    try:
        yield start
        for server in started:
            if server.process.returncode is None:
                server.stop()
    finally:
        for server in started:
            server.kill()


@pytest.fixture
def start_picker(tmp_path):
    """The same of pickers: start_picker(pool, flag, …), of the class `kind`."""
    counter = itertools.count()
    with contextlib.ExitStack() as started:
        def start(pool, *args, kind=Picker, **options):
            folder = tmp_path / f"picker{next(counter)}"
            folder.mkdir()
            return started.enter_context(kind(folder, pool, args, **options))
        yield start


@pytest.fixture
def gate(tmp_path):
    """A model whose loading waits until gate.open() is called: a backend of a few lines, made from the
    public header alone. `args` serve it."""
    class Gate:
        file = tmp_path / "gate-is-open"
        args = ["--model-repository", tmp_path / "models", "--backend-dir", tmp_path / "backends"]

        def open(self):
            self.file.write_text("")

    backends.make(tmp_path, "gate")
    os.makedirs(tmp_path / "models" / "gated" / "1")
    (tmp_path / "models" / "gated" / "config.pbtxt").write_text(f"""
        backend: "gate"
        max_batch_size: 0
        input {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }}
        output {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }}
        parameters {{ key: "gate" value {{ string_value: "{Gate.file}" }} }}
    """)
    return Gate()


@pytest.fixture
def many_descriptors():
    """Raises this process's limit on descriptors for a test of idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = idle_connections.N + 1000
    assert hard == resource.RLIM_INFINITY or hard >= wanted, \
        f"the hard limit on descriptors is {hard}, this test needs {wanted}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
