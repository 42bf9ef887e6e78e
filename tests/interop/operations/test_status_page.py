"""The operators' listener besides its metrics: the status page and its numbers, the page in a real
browser, and what is said of connections, requests and instances when somebody asks."""
import json
import subprocess
import re
import signal
import time

import pytest

from lib import browser, http1, mip
from lib.pages import assert_one_file
from lib.repository import Identity
from lib.server import Server

BODY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
POST = (b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n")


def wait_for(fits):
    end = time.monotonic() + http1.PATIENCE
    while not (found := fits()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.01)
    return found


@pytest.fixture
def fresh(start_server, repositories):
    return start_server("--model-repository", repositories("default"), "--workers", "2",
                        "--mip", "tcp://127.0.0.1:0=id_string", metrics_at="127.0.0.1:0",
                        grpc=("127.0.0.1:0",))


def get(running, target):
    answer = http1.request(running.metrics_address, "GET", target)
    assert answer.status == 200, str(answer)
    return answer


def infer(running, model, data=BODY):
    return http1.request(running.address, "POST", f"/v2/models/{model}/infer", data)


# ---- the numbers ---------------------------------------------------------------------------------

def status(running):
    answer = get(running, "/status.json")
    assert answer.get("Content-Type") == "application/json"
    return json.loads(answer.body)


def test_status_json_numbers(fresh):
    fresh.expect_error("out of ink")
    rows = json.dumps({"inputs": [{"name": "INPUT0", "shape": [3, 4], "datatype": "FP32",
                                   "data": [0] * 12}]}).encode()
    for _ in range(5):
        assert infer(fresh, "id_batch", rows).status == 200
    assert infer(fresh, "id_failing").status == 500

    def settled():
        now = status(fresh)
        models = {model["name"]: model for model in now["models"]}
        return models["id_batch"]["executions"] == 5 and models["id_failing"]["executions"] == 1 and (
            now, models)
    now, models = wait_for(settled)
    assert now["server"]["ready"] is True and now["server"]["started"] < time.time()
    assert now["process"]["connections"] >= 1 and now["process"]["resident_bytes"] > 1 << 20
    assert {"protocol": "http", "reason": "BACKEND_FAILED", "count": 1} in now["errors"]
    batch = models["id_batch"]
    assert (batch["state"], batch["version"], batch["max_batch_size"]) == ("ready", 1, 8)
    assert (batch["succeeded"], batch["inferences"], batch["queued"], batch["running"]) == (5, 15, 0, 0)
    assert batch["batch"] == {"sum": 15, "buckets": [0, 0, 5]}
    for part in ("request", "queue", "compute"):
        assert sum(batch[part]["buckets"]) == 5
    assert models["id_failing"]["failed"] == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 1, "OTHER": 0}
    assert status(fresh)["now_ns"] > now["now_ns"]


def test_status_json_failed_models(start_server, repositories):
    running = start_server("--model-repository", repositories("broken"), "--strict-readiness", "false",
                           metrics_at="127.0.0.1:0")
    running.expect_error("model failed to load")
    models = {model["name"]: model for model in status(running)["models"]}
    assert models["id_fp32"]["state"] == "ready" and "reason" not in models["id_fp32"]
    assert models["no_backend"]["state"] == "failed" and "absent" in models["no_backend"]["reason"]
    assert "max_batch_sise" in models["bad_field"]["reason"]


# ---- the page ------------------------------------------------------------------------------------

def test_status_page_is_one_file(fresh):
    assert_one_file(fresh.metrics_address)


def run_example(page):
    """Runs the command that the page shows for the selected model."""
    command = page.run("document.querySelector('#detail pre').textContent")
    return json.loads(subprocess.run(command + " -sS", shell=True, check=True, capture_output=True).stdout)


# What the page shows of a busy server: wide numbers in each column.
BUSY = """(() => {
    const real = fetch;
    window.fetch = async (...request) => {
        const now = await (await real(...request)).json();
        for (const model of now.models.filter(one => one.state === "ready")) {
            const n = Math.floor(now.now_ns / 1e6);
            Object.assign(model, { version: 12, queued: 1000, running: 256, instances: 64, busy: 64, busy_ns: now.now_ns * 64,
                succeeded: 100 * n, request: { sum: n, buckets: [...Array(19).fill(0), n] }, batch: { sum: 64 * n, buckets: [0, 0, 0, 0, 0, 0, n] } });
            model.failed.BACKEND = 123456;
        }
        now.memory.limit = 12345678901;
        document.body.dataset.busy = Number(document.body.dataset.busy || 0) + 1;
        return { json: async () => now };
    };
})()"""


@pytest.fixture(scope="module")
def widths(tmp_path_factory):
    """The page of a busy server, in a browser."""
    folder = tmp_path_factory.mktemp("widths")
    for name in ("digits", "bert-base-uncased-squad", "resnet50-v2-7"):
        Identity(name, [("FP32", [-1])], max_batch_size=8).write(str(folder / "models"))
    (folder / "models" / "torn").mkdir()
    (folder / "server").mkdir()
    with Server(folder / "server", ["--model-repository", folder / "models", "--strict-readiness", "false"],
                metrics_at="127.0.0.1:0") as running, browser.Browser(str(folder / "profile")) as page:
        running.expect_error("model failed to load")
        page.open(f"http://{running.metrics_address}/")
        page.run(BUSY)
        page.wait("Number(document.body.dataset.busy) >= 3")
        yield page


@pytest.mark.parametrize("width", [1440, 1320, 1200, 1100, 1081, 1080, 900, 800, 640, 375])
def test_status_page_models_fit(widths, width):
    """In a window of that many pixels nothing of the table of models is cut off."""
    widths.size(width, 1000)
    table = "document.getElementById('models').closest('.scroll')"
    assert widths.run(f"{table}.scrollWidth <= {table}.clientWidth"), widths.run(f"[{table}.scrollWidth, {table}.clientWidth]")
    assert widths.run("document.documentElement.scrollWidth") == width


def test_status_page_units_are_those_of_the_log(widths):
    assert widths.run("document.getElementById('memory-used').textContent") == "0 B of 11.5 GiB"


def test_status_page_in_browser(start_server, tmp_path):
    awkward = "<b onclick=x>&amp;\"'"
    long = "z" + 39 * "-"
    for name in ("plain", awkward, long):
        Identity(name, [("FP32", [-1])]).write(str(tmp_path / "models"))
    (tmp_path / "models" / "torn").mkdir()
    running = start_server("--model-repository", tmp_path / "models", "--strict-readiness", "false",
                           metrics_at="127.0.0.1:0")
    running.expect_error("model failed to load")
    for _ in range(20):
        assert infer(running, "plain").status == 200
    with browser.Browser(str(tmp_path / "profile")) as page:
        page.open(f"http://{running.metrics_address}/")
        page.wait("Number(document.body?.dataset.samples) >= 2")
        assert infer(running, "plain").status == 200  # it moves while somebody looks
        names = "[...document.querySelectorAll('#models td button')].map(one => one.textContent)"
        assert page.run(names) == sorted(["plain", awkward, "torn", long], key=str.encode)
        assert page.run("[...document.querySelectorAll('.scroll')].every(one => one.scrollWidth <= one.clientWidth)")
        page.size(390, 844)  # a phone: nothing but the table is wider than it
        assert page.run("document.documentElement.scrollWidth") == 390
        page.size(1320, 1000)
        assert page.run("document.querySelector('#models td.reason').textContent") != ""
        assert page.run("document.querySelector('#detail h2').textContent") == "plain 1"
        assert "INPUT0 FP32 [-1]" in page.run("document.querySelector('#detail').textContent")
        assert run_example(page)["model_name"] == "plain"
        page.run("document.querySelector('[name=span][value=all]').click()")
        page.wait("document.querySelectorAll('#models tr')[1].children[3].textContent.endsWith('s')")
        page.run("document.querySelectorAll('#models tr')[0].click()")
        assert page.run("document.querySelector('#detail h2').textContent") == awkward + " 1"
        assert run_example(page)["model_name"] == awkward
        assert page.run("document.querySelectorAll('#models b').length") == 0
        page.run("document.getElementById('filter').value = 'PLA'")
        page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
        assert page.run("[...document.querySelectorAll('#models tr')].filter(one => !one.hidden).length") == 1
        page.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
        assert page.run("document.body.dataset.error") is None
        assert page.complaints() == []
        assert {url.rpartition("/")[2] for url in page.asked_for()} <= {"", "status.json", "blank",
                                                                       "about:blank"}
        assert all(running.metrics_address in url for url in page.asked_for() if "blank" not in url)
        running.stop()
        page.wait("document.getElementById('live').textContent.startsWith('no answer')")


# ---- the state -----------------------------------------------------------------------------------

def test_debug_state_requests_and_instances(fresh):
    clients = [http1.Connection(fresh.address) for _ in range(3)]
    data = BODY.replace(b"{", b'{"id":"mine",', 1)
    for client in clients:
        client.send(POST % (b"id_slowest", len(data)) + data)
    with http1.Connection(fresh.address) as half, mip.Connection(fresh.mip_urls[0]) as packet:
        half.send(POST[:20])
        packet.send(b"\0\2")

        def settled():
            text = get(fresh, "/debug/state").body.decode()
            return "2 waiting, 1 running" in text and text.count("reading head") == 2 and text
        text = wait_for(settled)
    assert re.search(r"^model id_slowest 1: 2 waiting, 1 running, 1 instance\n"
                     r"  instance 0: 1 request, 1 row, for [0-9.]+ ms\n"
                     r"(  waits for [0-9.]+ ms: 1 row, id mine\n){2}idle: ", text), text
    assert text.count("waiting for the response, ") == 3
    assert text.count("(POST /v2/models/id_slowest/infer)") == 3
    assert "id_fp32 1" in text and "(GET /debug/state)" in text
    for name in ("http", "grpc", "mip", "metrics"):
        assert re.search(rf"^{name}: [0-9]+ requests? in flight$", text, re.MULTILINE)
    fresh.signal(signal.SIGUSR2)
    wait_for(lambda: [line for line in fresh.log_lines() if line.get("event") == "state" and
                      line["line"].startswith("metrics:")])
    lines = [line["line"] for line in fresh.log_lines() if line.get("event") == "state"]
    assert any(line.startswith("model id_slowest 1: 2 waiting") for line in lines)
    for client in clients:
        client.reset()
    wait_for(lambda: "idle: " in get(fresh, "/debug/state").body.decode().splitlines()[0])


@pytest.mark.parametrize("target", ["/debug/state", "/status.json", "/metrics"])
def test_admin_page_with_body_is_answered_once(fresh, target):
    """The page is printed when other threads have told their part: what becomes of a body meanwhile is no second
    response."""
    head = b"GET " + target.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
    for body, status in ((b"3\r\nabc\r\n0\r\n\r\n", 200), (b"no chunk\r\n", 400), (b"10001\r\n", 413)):
        with http1.Connection(fresh.metrics_address) as client:
            client.send(chunked + body)
            assert client.read_answer().status == status
        assert get(fresh, target)
    with http1.Connection(fresh.metrics_address) as client:
        client.send(head + b"Content-Length: 10\r\n\r\nhalf")
        client.reset()
    assert get(fresh, target)


def test_debug_state_is_bounded(fresh):
    clients = [http1.Connection(fresh.address) for _ in range(300)]
    try:
        text = wait_for(lambda: [text for text in [get(fresh, "/debug/state").body.decode()]
                                 if text.count("and 50 more") == 2])[0]
        assert text.count(": idle") == 200
    finally:
        for client in clients:
            client.close()


def test_debug_state_concurrent_requests(fresh):
    """Each asks all workers; one that leaves before its answer takes nothing with it."""
    clients = [http1.Connection(fresh.metrics_address) for _ in range(20)]
    for number, client in enumerate(clients):
        client.send(b"GET /debug/state HTTP/1.1\r\nHost: x\r\n\r\n")
        if number % 3 == 0:
            client.reset()
    for number, client in enumerate(clients):
        if number % 3 != 0:
            assert client.read_answer().status == 200
            client.close()
    fresh.wait_at_rest()
