"""What `sluice serve` and `sluice pick` tell the service manager that started them, and the units in
deploy/systemd/ as systemd reads them."""
import glob
import os
import re
import shutil
import signal
import ssl
import subprocess

import pytest

from lib import http1, repository
from lib.certificates import Identity
from lib.pick_client import Proxy
from lib.server import ROOT, addresses_in, binary, defaults_of
from lib.service_manager import Manager, hung, threads_of

pytestmark = [pytest.mark.tsan, pytest.mark.plain]

UNITS = os.path.join(ROOT, "deploy", "systemd")
POOL = "endpoints: [10.0.0.1:8000]\n"
OTHER_POOL = "endpoints: [10.0.0.2:8000]\n"
OFTEN_US = 60000
RESERVED_FILES = 1024  # docs/running.md
SELDOM = "1h"


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """manager(address, watchdog_us, busy): what a test starts from then on is started by it."""
    managers = []

    def start(address=f"{tmp_path}/notify", watchdog_us=None, busy=False):
        managers.append(Manager(address, watchdog_us, busy))
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
            if name in managers[-1].environment:
                monkeypatch.setenv(name, managers[-1].environment[name])
        return managers[-1]
    yield start
    for one in managers:
        one.close()


@pytest.fixture
def start(start_server, start_picker, repositories):
    """start(kind, flag, …)"""
    return {"serve": lambda *args: start_server("--model-repository", repositories("default"), *args),
            "pick": lambda *args: start_picker(POOL, *args)}


KINDS = pytest.mark.parametrize("kind", ["serve", "pick"])


@KINDS
@pytest.mark.parametrize("address", ["{folder}/notify", "@sluice-test-{pid}-{kind}"])
def test_notify_states_over_lifecycle(kind, address, start, manager, tmp_path):
    systemd = manager(address.format(folder=tmp_path, pid=os.getpid(), kind=kind))
    server = start[kind]()
    assert systemd.hear() == {"READY": "1", "STATUS": "ready"}
    server.signal(signal.SIGHUP)
    reloading = systemd.hear()
    assert reloading.pop("MONOTONIC_USEC").isdigit()
    assert reloading == {"RELOADING": "1", "STATUS": "reading its files again"}
    assert systemd.hear() == {"READY": "1", "STATUS": "ready"}
    server.signal()
    assert systemd.hear() == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "40000000", "STATUS": "ending"}
    assert server.wait_exit() == 0
    server.check_log()
    assert systemd.hear(0.001) is None  # without a watchdog there are no signs


@KINDS
def test_notify_ready_reaches_manager_that_was_busy(kind, start, manager):
    """It takes no message for longer than the server waits at first."""
    systemd = manager(watchdog_us=OFTEN_US, busy=True)
    server = start[kind]()

    def failures():
        return sum(line.get("event") == "notifying the service manager failed" for line in server.log_lines())
    server.wait_for(failures, "a message that was not taken")
    assert failures() == 1
    systemd.start_receiving()
    assert systemd.wait_for(READY="1") == {"READY": "1", "STATUS": "ready"}
    systemd.wait_for(WATCHDOG="1")


def test_notify_ready_after_models_load(start_server, repositories, manager):
    systemd = manager()
    server = start_server("--model-repository", repositories("broken"), wait="loaded")
    server.expected_errors.append("model failed to load")
    assert systemd.hear() == {"READY": "1", "STATUS": "not ready: a model failed to load"}
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 503


@KINDS
def test_watchdog_stops_when_event_loop_hangs(kind, start, manager):
    """Of whichever thread that has an event loop, the signs stop."""
    systemd = manager(watchdog_us=OFTEN_US)
    server = start[kind]("--workers", "2", "--loop-unready-after", "50ms")
    systemd.wait_for(READY="1")
    looping = {thread: name for thread, name in threads_of(server.pid).items()
               if name in ("worker", "admin", "discovery") or thread == server.pid}
    assert len(looping) == (4 if kind == "serve" else 5), threads_of(server.pid)
    for thread in looping:
        systemd.wait_for(WATCHDOG="1")
        with hung(thread):
            if thread != server.pid:
                n_warned = server.log_text().count("event loop does not respond")
                server.wait_for(lambda n=n_warned: server.log_text().count("event loop does not respond") > n,
                                "a line in the log")
            systemd.wait_silent(10 * OFTEN_US / 1e6)
        systemd.wait_for(WATCHDOG="1")
    server.signal()
    systemd.wait_for(STOPPING="1")
    assert server.wait_exit() == 0
    server.check_log()


def test_watchdog_continues_during_drain(start_server, repositories, manager):
    systemd = manager(watchdog_us=OFTEN_US)
    server = start_server("--model-repository", repositories("default"))
    connection = http1.Connection(server.address)
    connection.send(b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 71\r\n\r\n{")
    server.wait_for(lambda: http1.request(server.address, "GET", "/metrics").body.count(
        b"sluice_body_bytes_in_flight 0") == 0, "half a request")
    server.signal()
    systemd.wait_for(STOPPING="1")
    for _ in range(3):
        systemd.wait_for(WATCHDOG="1")
    connection.close()
    assert server.wait_exit() == 0


@pytest.mark.parametrize("name, value", [("NOTIFY_SOCKET", "nowhere"), ("WATCHDOG_USEC", "often"),
                                         ("NOTIFY_SOCKET", "/nowhere/notify")])
def test_notify_failure_is_logged_once(name, value, start, manager, monkeypatch):
    manager()
    monkeypatch.setenv(name, value)
    server = start["serve"]()
    assert http1.request(server.address, "GET", "/v2/health/ready").status == 200
    assert sum("service manager" in line.get("event", "") for line in server.log_lines()) == 1


def test_sighup_reloads_pools(start, manager):
    """When that is asked for, and not for an hour otherwise."""
    systemd = manager()
    picker = start["pick"]("--reload-interval", SELDOM)
    with Proxy(picker.grpc_addresses[0]) as proxy:
        assert proxy.pick("/v2/models/digits/infer") == "10.0.0.1:8000"
        picker.write_pool(OTHER_POOL)
        picker.signal(signal.SIGHUP)
        systemd.wait_for(RELOADING="1")
        picker.wait_until(lambda n: n["sluice_pick_pool_generation"] == 2, "the new pool")
        assert proxy.pick("/v2/models/digits/infer") == "10.0.0.2:8000"


def served_certificate(address):
    host, _, port = address.rpartition("grpcs://")[2].rpartition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def test_sighup_reloads_tls_files(start, tmp_path):
    one, other = Identity("one"), Identity("other")
    cert, key = one.write(str(tmp_path / "tls"))
    picker = start["pick"]("--reload-interval", SELDOM, "--grpc-tls-cert", cert, "--grpc-tls-key", key)
    assert served_certificate(picker.grpc_addresses[0]) == one.cert_pem()
    other.write(str(tmp_path / "tls"))
    picker.signal(signal.SIGHUP)
    picker.wait_for(lambda: served_certificate(picker.grpc_addresses[0]) == other.cert_pem(), "the new one")


def test_sighup_reloads_keys_and_models(start_server, tmp_path):
    models, keys = tmp_path / "models", tmp_path / "keys"
    repository.Identity("a", [("FP32", [4])]).write(models)
    keys.write_text("metadata: [before-it-was-changed]\n")
    server = start_server("--model-repository", models, "--model-control-mode", "poll", "--repository-poll-secs",
                          "86400", "--keys", keys, "--reload-interval", SELDOM, wait="nothing")
    server.wait_for(lambda: os.path.exists(server.ready_file), "a ready file")
    address = addresses_in(server.ready_file)[0]

    def status(name):
        fields = [("Authorization", "Bearer after-it-was-changed")]
        return http1.request(address, "GET", f"/v2/models/{name}", b"", fields).status
    assert status("a") == 401
    repository.Identity("b", [("FP32", [4])]).write(models)
    keys.write_text("metadata: [after-it-was-changed]\n")
    server.signal(signal.SIGHUP)
    server.wait_for(lambda: status("a") == 200, "the new keys")
    server.wait_for(lambda: status("b") == 200, "the new model")


# ---- units ---------------------------------------------------------------------------------------

def units():
    return sorted(glob.glob(os.path.join(UNITS, "*.service")))


def analyze(*args):
    return subprocess.run(["systemd-analyze", "--no-pager", *args], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def with_our_program(tmp_path, path):
    """A copy of the unit that starts the program under test."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "\nExecStart=/usr/bin/sluice " in text
    copy = tmp_path / os.path.basename(path)
    copy.write_text(text.replace("/usr/bin/sluice", binary()), encoding="utf-8")
    return copy


@pytest.mark.parametrize("drop_in", [False, True])
@pytest.mark.parametrize("path", units(), ids=os.path.basename)
def test_systemd_unit_is_valid(path, drop_in, tmp_path):
    copy = with_our_program(tmp_path, path)
    if drop_in:
        kind = re.search(r"sluice-(\w+)\.service", path).group(1)
        os.makedirs(f"{copy}.d")
        shutil.copy(os.path.join(UNITS, f"{kind}-unix-sockets.conf"), f"{copy}.d/")
        with_program = (tmp_path / f"{copy.name}.d" / f"{kind}-unix-sockets.conf")
        with_program.write_text(with_program.read_text().replace("/usr/bin/sluice", binary()))
    done = analyze("--man=no", "verify", str(copy))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", units(), ids=os.path.basename)
def test_systemd_unit_security_rating(path):
    """Its worst rating would be 10; 1.5 is what systemd calls OK."""
    done = analyze("security", "--offline=true", "--threshold=15", path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", units(), ids=os.path.basename)
def test_systemd_unit_limits_fit_defaults(path):
    """Descriptors for --max-connections with the reserve, so that it is not lowered; and a stop that lasts as long as
    a drain is not ended by systemd, nor by its watchdog."""
    with open(path, encoding="utf-8") as file:
        unit = dict(re.findall(r"^(\w+)=(.+)$", file.read(), re.M))
    defaults = defaults_of(re.search(r"sluice-(\w+)\.service", path)[1])
    assert int(unit["LimitNOFILE"]) >= int(defaults["--max-connections"]) + RESERVED_FILES
    drain = seconds_of(defaults["--drain-timeout"])
    assert seconds_of(unit["TimeoutStopSec"]) >= drain + 10
    assert 5 <= seconds_of(unit["WatchdogSec"]) <= drain
    assert seconds_of(unit["TimeoutStartSec"]) > seconds_of(unit["WatchdogSec"])
    assert not {"MemoryMax", "MemoryHigh"} & set(unit)  # the budgets are shares of the machine's memory


def seconds_of(text):
    number, unit = re.fullmatch(r"(\d+)(s|min)", text).groups()
    return int(number) * {"s": 1, "min": 60}[unit]


def test_systemd_units_exist():
    assert [os.path.basename(path) for path in units()] == ["sluice-pick.service", "sluice-serve.service"]
