"""The picker inside a real Envoy, as a dynamic module: deploy/envoy/in-process.yaml. What it answers is what `sluice pick`
answers behind deploy/envoy/full-duplex.yaml, to the byte; and what ends badly leaves an Envoy that answers the next
request."""
import collections
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
import yaml

from lib import echo, http1
from lib.envoy import ADMIN, LISTENER, SERVERS, Envoy, deployed, patient, places_of
from lib.gateway import IN_PROCESS, Gateway
from lib.load import Load
from lib.ports import free_port
from lib.server import binary

pytestmark = pytest.mark.programs

POST = b"/v1/completions"
BODY = b'{"model": "digits", "prompt": "a"}'
POOL = "endpoints:\n%s\nmodels: [digits, {name: other, targets: [{model: another-name}]}]\n"


class InProcess:
    """An Envoy with the picker in it."""

    def __init__(self, folder, endpoints, pool=POOL, settings="", change=lambda text: text, concurrency=1):
        self.pool_file = os.path.join(str(folder), "pool.yaml")
        self.endpoints = endpoints
        self.write_pool(pool)
        places = {LISTENER: "127.0.0.1:0", **places_of(endpoints)}
        text = patient(deployed("in-process.yaml", places)).replace(
            "config: pool.yaml", f"config: {self.pool_file}, reload-interval: 20ms, metrics: none{settings}")
        self.envoy = Envoy(folder, change(text), concurrency)
        self.address = self.envoy.address

    def write_pool(self, pool, endpoints=None):
        lines = "\n".join(f"  - {one}" for one in endpoints or self.endpoints)
        with open(self.pool_file + ".new", "w", encoding="utf-8") as file:
            file.write(pool % lines)
        os.replace(self.pool_file + ".new", self.pool_file)

    def post(self, body=BODY, path=POST, *fields):
        with http1.Connection(self.address) as connection:
            connection.send(http1.post(path, body, *fields))
            return connection.read_answer("POST")

    def served_by(self, body=BODY):
        answer = self.post(body)
        assert answer.status == 200, answer
        return json.loads(answer.body)["server"]


@pytest.fixture
def start(tmp_path, echoes):
    """start(…): an Envoy with the picker in it, which answers a good request at the end, and ends well."""
    with contextlib.ExitStack() as ending:
        def begin(endpoints=None, **more):
            begin.made = InProcess(tmp_path, endpoints or [one.address for one in echoes], **more)
            ending.callback(begin.made.envoy.kill)
            return begin.made
        begin.ends_well = True
        yield begin
        if begin.ends_well:
            assert begin.made.post().status == 200
        begin.made.envoy.stop()


# ---- the same answers as ext-proc ----------------------------------------------------------------

REASON = "x-llm-d-request-dropped-reason"
LONG = json.dumps({"prompt": "a" * 300000, "model": "digits"}).encode()
REQUESTS = {
    "good": (POST, BODY),
    "model at the end": (POST, LONG),
    "renamed": (POST, b'{"prompt": "a", "model": "other", "n": 1}'),
    "renamed at the end": (POST, LONG.replace(b"digits", b"other")),
    "unknown model": (POST, b'{"model": "unheard"}'),
    "no model": (POST, b'{"prompt": "a"}'),
    "not JSON": (POST, b"model=digits"),
    "empty": (POST, b""),
    "cut off": (POST, b'{"model": "dig'),
    "two models": (POST, b'{"model": "digits", "model": "unheard"}'),
    "not UTF-8": (POST, b'{"model": "\xff\xfe"}'),
    "model of the path": (b"/v2/models/digits/infer", b"{}"),
    "unknown model of the path": (b"/v2/models/unheard/infer", b"{}"),
    "renamed in the path": (b"/v2/models/other/infer", b"{}"),
    "another path": (b"/anything", b"text"),
    "messages": (b"/v1/messages", b'{"model": "unheard"}'),
}
# Full duplex sends bodies without a length.
CHANGING = ("x-request-id", "x-gateway-destination-endpoint", "host", "content-length", "transfer-encoding")


def shown(reply):
    """What a client sees, and what the server saw, without what differs between any two requests."""
    headers = {name: value for name, value in reply.headers.items()
               if name not in ("date", "x-envoy-upstream-service-time", "content-length", "connection")}
    body = reply.body
    if reply.status == 200:
        body = json.loads(body)
        body["headers"] = {name: value for name, value in body["headers"].items() if name not in CHANGING}
        del body["server"]
    return reply.status, headers, body


@pytest.mark.parametrize("http2", [False, True])
def test_in_process_answers_are_those_of_ext_proc(start, tmp_path_factory, echoes, http2):
    """Of each request: status, headers and body, and what the server received."""
    endpoints = [one.address for one in echoes]
    inside = start()
    outside = Gateway(tmp_path_factory.mktemp("outside"), "full-duplex.yaml", endpoints,
                      change=lambda pool: POOL % "\n".join(f"  - {one}:8000" for one in SERVERS))
    try:
        for name, (path, body) in REQUESTS.items():
            there = outside.curl(path.decode(), body=body)
            outside.address, kept = inside.address, outside.address
            here = outside.curl(path.decode(), body=body, http2=http2)
            outside.address = kept
            assert shown(here) == shown(there), name
            if here.status == 200:
                seen = json.loads(here.body)
                assert int(seen["headers"].get("content-length", 0)) == seen["length"], name
        outside.stop()
    finally:
        outside.kill()


def test_in_process_destination_reaches_server(start, echoes):
    """The header is set by the picker, whatever a client sends, and names the server that has the request."""
    inside = start()
    for _ in range(6):
        seen = json.loads(inside.post(BODY, POST, b"x-gateway-destination-endpoint: 127.0.0.1:1").body)
        names = {one.address: one.name for one in echoes}
        assert names[seen["headers"]["x-gateway-destination-endpoint"]] == seen["server"]


def test_in_process_override_host_chooses_of_cluster(start, echoes):
    """A cluster with a list of hosts, which reads no header."""
    hosts = "".join(f"""
              - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {one.address[10:]}}}}}}}"""
                    for one in echoes)
    cluster = re.compile(r"    - name: models\n      type: ORIGINAL_DST.*?\n(?=      typed_extension)", re.S)
    inside = start(change=lambda text: cluster.sub(f"""    - name: models
      type: STATIC
      connect_timeout: 60s
      circuit_breakers: &many
        thresholds: [{{max_connections: 100000}}]
      load_assignment:
        cluster_name: models
        endpoints:
          - lb_endpoints:{hosts}
""", text, count=1))
    for _ in range(12):
        seen = json.loads(inside.post().body)
        names = {one.address: one.name for one in echoes}
        assert names[seen["headers"]["x-gateway-destination-endpoint"]] == seen["server"]


@pytest.mark.parametrize("scores", [False, True])
def test_in_process_metadata_names_the_pick(start, echoes, scores):
    """What other filters and the access log read: texts, and with --emit-endpoint-scores a Struct of numbers."""
    inside = start(settings=", emit-endpoint-scores: true" if scores else "", pool="""metrics: {preset: vllm, interval: 50ms}
profile:
  plugins: [{type: queue-scorer}]
  schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
""" + POOL, change=lambda text: text.replace("domains: [\"*\"]", "domains: [\"*\"]\n"
        "                      response_headers_to_add: [{header: {key: x-metadata, value: "
        "'%DYNAMIC_METADATA(envoy.lb)%'}}]"))
    by_name = {one.name: one.address for one in echoes}
    for _ in range(1000):  # until the loads of all are known
        answer = inside.post()
        said = json.loads(answer.get("x-metadata"))
        if not scores or len(said) == 2:
            break
    assert said["x-gateway-destination-endpoint"] == by_name[json.loads(answer.body)["server"]]
    found = said.get("x-gateway-destination-endpoint-scores", {})
    assert set(found) == (set(by_name.values()) if scores else set())
    assert all(0 <= score <= 1 for score in found.values())


# ---- pools ---------------------------------------------------------------------------------------

def test_in_process_requests_reach_each_server(start):
    inside = start(concurrency=2)
    assert collections.Counter(inside.served_by() for _ in range(60)).keys() == {"a", "b", "c"}


def test_in_process_pool_file_is_read_again(start, echoes):
    inside = start()
    inside.write_pool(POOL, [echoes[1].address])
    for _ in range(1000):
        if {inside.served_by() for _ in range(40)} == {"b"}:
            return
    assert {inside.served_by() for _ in range(40)} == {"b"}


def test_in_process_empty_pool_is_503(start):
    inside = start(pool="health: {http: /health, interval: 50ms, unhealthy: 1}\n" + POOL,
                   endpoints=["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
    start.ends_well = False
    answer = inside.post()
    assert answer.status == 503 and "endpoint" in json.loads(answer.body)["error"]["message"]
    assert answer.get(REASON) == "rejected-no-endpoints"


def test_in_process_dead_endpoint_is_last_choice(tmp_path, start):
    """Without health checks: a refused connection is one lost request and not a third of them."""
    with echo.three() as servers:
        inside = start([one.address for one in servers], pool="refused_for: 1m\n" + POOL)
        start.ends_well = False
        assert {inside.served_by() for _ in range(60)} == {"a", "b", "c"}
        servers[0].close()
        statuses = [inside.post().status for _ in range(60)]
        assert statuses.count(503) <= 1 and set(statuses) <= {200, 503}, statuses
        servers[0] = echo.Echo("a", servers[0].address)
        assert inside.post().status == 200


# ---- clients -------------------------------------------------------------------------------------

def test_in_process_body_over_limit_is_413(start):
    inside = start(settings=", max-body-size: 100KiB")
    answer = inside.post(json.dumps({"prompt": "a" * 200000, "model": "digits"}).encode())
    assert answer.status == 413 and "102400" in answer.plain_body().decode()
    assert inside.post(json.dumps({"prompt": "a" * 90000, "model": "digits"}).encode()).status == 200


def test_in_process_large_bodies_are_unchanged(start):
    """Larger than Envoy's own buffer of a megabyte, and the model at either end."""
    inside = start()
    for size in (1 << 20, 5 << 20):
        for body in ({"prompt": "a" * size, "model": "digits"}, {"model": "digits", "prompt": "a" * size}):
            sent = json.dumps(body).encode()
            assert json.loads(inside.post(sent).body)["length"] == len(sent)


@pytest.mark.parametrize("sent", [b"", b'{"mod', b'{"model": "digits", "prompt": "'])
def test_in_process_client_leaves_within_body(start, sent):
    inside = start()
    for _ in range(5):
        connection = http1.Connection(inside.address)
        connection.send(http1.post_head(POST, 1000) + sent)
        connection.reset()
    assert inside.post().status == 200


def test_in_process_client_leaves_within_response(start, echoes):
    """What it had in flight is released: otherwise the limit of the pool would be reached."""
    inside = start(pool="saturation: {max_in_flight: 1}\n" + POOL)
    for _ in range(9):
        connection = http1.Connection(inside.address)
        connection.send(http1.post(POST, BODY, b"x-answer: pause"))
        assert connection.read_head().status == 200
        connection.reset()
    for one in echoes:
        one.let_go()
    for _ in range(2000):
        if inside.post().status == 200:
            break
    assert [inside.post().status for _ in range(9)] == [200] * 9


def test_in_process_200_requests_at_once(start):
    inside = start(concurrency=2)
    statuses = []

    def run():
        statuses.extend(inside.post().status for _ in range(5))
    threads = [threading.Thread(target=run) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collections.Counter(statuses) == {200: 1000}


# ---- waiting -------------------------------------------------------------------------------------

WAITING = "saturation: {max_in_flight: 1}\nflow_control: {max_wait: %s}\n"


@pytest.fixture
def full(tmp_path, echoes):
    """full(max_wait): a gateway each of whose three servers has a request, which lasts until `let_go`."""
    with contextlib.ExitStack() as ending:
        def begin(max_wait):
            gateway = Gateway(tmp_path, IN_PROCESS, [one.address for one in echoes], concurrency=2, change=lambda pool:
                              re.sub(r"^(saturation|flow_control):.*\n", "", pool, flags=re.M) + WAITING % max_wait)
            ending.callback(gateway.kill)
            for _ in range(3):
                busy = ending.enter_context(http1.Connection(gateway.address))
                busy.send(http1.post(POST, BODY, b"x-answer: pause"))
                assert busy.read_head().status == 200
            begin.gateway = gateway
            return gateway
        yield begin
        for one in echoes:
            one.let_go()
        assert begin.gateway.curl("/v1/completions", body=BODY).status == 200
        begin.gateway.stop()


def test_in_process_waiting_requests_go_on(full, echoes):
    """In the order in which they came, with their bodies, small and large, over HTTP/1.1 and HTTP/2."""
    gateway, answers = full("60s"), []

    def ask(body, http2):
        answers.append((body, gateway.ask("/v1/completions", body=body, http2=http2)))
    threads = [threading.Thread(target=ask, args=(body, http2)) for body in (BODY, LONG, b'{"model": "digits"}') * 3
               for http2 in (False, True)]
    for thread in threads:
        thread.start()
    gateway.picker.wait_waiting(len(threads))
    for one in echoes:
        one.let_go()
    for thread in threads:
        thread.join()
    assert len(answers) == len(threads)
    assert all(answer["sha1"] == hashlib.sha1(body).hexdigest() for body, answer in answers)


@pytest.mark.parametrize("sent", [http1.post(POST, BODY), http1.post_head(POST, 1000) + BODY,
                                  http1.post(b"/v2/models/digits/infer", b"{}")])
def test_in_process_client_leaves_while_it_waits(full, sent):
    gateway = full("60s")
    waiting = [http1.Connection(gateway.address) for _ in range(5)]
    for connection in waiting:
        connection.send(sent)
    gateway.picker.wait_waiting(5)
    for connection in waiting:
        connection.reset()
    gateway.picker.wait_waiting(0)


def test_in_process_wait_ends_with_429(full):
    reply = full("100ms").curl("/v1/completions", body=BODY)
    assert reply.status == 429 and reply.headers[REASON] == "rejected-ttl-expired"


def test_in_process_body_that_stalls_is_408(start):
    """The body names the model, and does not come: --answer-timeout, as for ext-proc."""
    inside = start(settings=", answer-timeout: 50ms")
    with http1.Connection(inside.address) as connection:
        connection.send(http1.post_head(POST, 1000) + b'{"prompt": "')
        assert connection.read_answer("POST").status == 408


# ---- a listener that is replaced -----------------------------------------------------------------

def replace_whole(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def listener_from_file(text, path):
    """Envoy's configuration with its listener in a file of its own, which is read again when it is replaced."""
    tree = yaml.safe_load(text)
    listener = {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
                **tree["static_resources"].pop("listeners")[0]}
    replace_whole(path, json.dumps({"resources": [listener]}))
    tree["admin"] = yaml.safe_load(ADMIN)["admin"]
    tree["node"] = {"id": "one", "cluster": "one"}
    tree["dynamic_resources"] = {"lds_config": {"path_config_source": {
        "path": path, "watched_directory": {"path": os.path.dirname(path)}}}}
    return yaml.safe_dump(tree), listener


def test_in_process_listener_is_replaced_under_load(tmp_path, echoes):
    """With the same settings it shares the picker; with others it has one of its own, and the first one ends with its
    last request. No request fails."""
    pool, path = tmp_path / "pool.yaml", str(tmp_path / "listener.json")
    pool.write_text(POOL % "\n".join(f"  - {one.address}" for one in echoes))
    port = free_port()
    text = patient(deployed("in-process.yaml", {LISTENER: f"127.0.0.1:{port}"})).replace(
        "config: pool.yaml", f"config: {pool}, metrics: none")
    text, listener = listener_from_file(text, path)
    envoy = Envoy(tmp_path, text)
    try:
        with Load(envoy.address, 4, "POST", "/v1/completions", BODY) as load:
            load.wait_more(50, 200)
            for settings in ({"log-level": "info"}, {"log-level": "info"}, {"log-level": "warning"}):
                said = json.dumps(listener).replace('"metrics": "none"', '"metrics": "none", ' + json.dumps(settings)[1:-1])
                n = envoy.counter("listener_manager.listener_create_success")
                replace_whole(path, said.replace('"stat_prefix": "inference"', f'"stat_prefix": "inference{n}"').join(
                    ('{"resources": [', "]}")))
                while envoy.counter("listener_manager.listener_create_success") == n:
                    load.wait_more(5)
                load.wait_more(50, 200)
        assert set(load.outcomes) == {200}
    finally:
        envoy.kill()
    assert envoy.log_text().count("picker in Envoy: ready") == 2
    assert "can't start" not in envoy.log_text()


def waiting_at(envoy, bodies):
    """Threads whose requests wait, as no server has a place for them; the statuses of their replies are added to the list,
    None where the connection ends without one."""
    statuses, threads = [], []

    def run(body):
        with http1.Connection(envoy.address) as connection:
            connection.send(http1.post(POST, body))
            try:
                statuses.append(connection.read_answer("POST").status)
            except http1.Closed:
                statuses.append(None)
    for body in bodies:
        threads.append(threading.Thread(target=run, args=(body,)))
        threads[-1].start()
    return threads, statuses


@pytest.fixture
def occupied(tmp_path, echoes):
    """occupied(): an Envoy with its listener in a file, whose three servers have a request each, and four more that wait.
    Returns: it, the listener, its file, and threads and statuses of those four."""
    with contextlib.ExitStack() as ending:
        def begin():
            pool, path = tmp_path / "pool.yaml", str(tmp_path / "listener.json")
            pool.write_text(WAITING % "10m" + POOL % "\n".join(f"  - {one.address}" for one in echoes))
            text = patient(deployed("in-process.yaml", {LISTENER: f"127.0.0.1:{free_port()}"})).replace(
                "config: pool.yaml", f"config: {pool}, metrics: none, log-level: debug")
            text, listener = listener_from_file(text, path)
            envoy = Envoy(tmp_path, text)
            ending.callback(envoy.kill)
            for _ in range(3):
                busy = ending.enter_context(http1.Connection(envoy.address))
                busy.send(http1.post(POST, BODY, b"x-answer: pause"))
                assert busy.read_head().status == 200
            threads, statuses = waiting_at(envoy, (BODY, LONG, BODY, LONG))
            envoy.wait_for(time.monotonic() + http1.PATIENCE,
                           lambda: envoy.counter("http.inference.downstream_rq_active") == 7)
            return envoy, listener, path, threads, statuses
        yield begin
        for one in echoes:
            one.let_go()


def test_in_process_waiting_requests_outlive_their_listener(occupied, echoes):
    """Another one with other settings has a picker of its own; requests that wait at the first one are served, and it ends."""
    envoy, listener, path, threads, statuses = occupied()
    said = json.dumps(listener).replace('"log-level": "debug"', '"log-level": "info"')
    replace_whole(path, '{"resources": [%s]}' % said)
    envoy.wait_for(time.monotonic() + http1.PATIENCE, lambda: envoy.log_text().count("picker in Envoy: ready") == 2)
    for one in echoes:
        one.let_go()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 4
    assert InProcess.post(envoy).status == 200
    envoy.stop()
    assert envoy.log_text().count("picker in Envoy: stopped") == 2


@pytest.mark.parametrize("how", ["", "?graceful&skip_exit"])
def test_in_process_waiting_requests_outlive_drain(occupied, echoes, how):
    """Envoy closes its listeners, and the requests that it has are served."""
    envoy, _, _, threads, statuses = occupied()
    envoy.ask("/drain_listeners" + how, "POST")
    for one in echoes:
        one.let_go()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 4
    envoy.stop()


def test_in_process_stop_with_waiting_requests_ends(occupied):
    """SIGTERM while requests wait: Envoy ends, and so does the picker."""
    envoy, _, _, threads, statuses = occupied()
    envoy.stop()
    for thread in threads:
        thread.join()
    assert statuses == [None] * 4
    assert "picker in Envoy: stopped" in envoy.log_text()


def test_in_process_hot_restart_loses_no_request(tmp_path, echoes):
    """A second Envoy with the module takes the listener over, while the first one ends with its requests."""
    pool = tmp_path / "pool.yaml"
    pool.write_text(POOL % "\n".join(f"  - {one.address}" for one in echoes))
    text = patient(deployed("in-process.yaml", {LISTENER: f"127.0.0.1:{free_port()}"})).replace(
        "config: pool.yaml", f"config: {pool}, metrics: none")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    number, times = tmp_path / "base-id", ("--drain-time-s", "1", "--parent-shutdown-time-s", "3")
    envoys = [Envoy(folders[0], text, restart=("--use-dynamic-base-id", "--base-id-path", str(number), *times))]
    try:
        with Load(envoys[0].address, 4, "POST", "/v1/completions", BODY) as load:
            load.wait_more(50, 200)
            envoys.append(Envoy(folders[1], text, restart=("--base-id", number.read_text().strip(), "--restart-epoch", "1",
                                                           *times)))
            assert envoys[0].process.wait(http1.PATIENCE) == 0
            load.wait_more(50, 200)
        assert set(load.outcomes) == {200}
        assert "picker in Envoy: stopped" in envoys[0].log_text()
        envoys[1].stop()
    finally:
        for envoy in envoys:
            envoy.kill()


# ---- several filters -----------------------------------------------------------------------------

def filter_of(tree):
    """The list of filters of the one listener, and that of the picker."""
    filters = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    return filters, next(one for one in filters if one["name"] == "sluice")


@pytest.mark.parametrize("settings", [{}, {"log-level": "warning"}])
def test_in_process_two_filters_in_one_chain(start, settings):
    """Each picks, with one picker or with one of its own; the second one's choice counts."""
    def twice(text):
        tree = yaml.safe_load(text)
        filters, first = filter_of(tree)
        second = json.loads(json.dumps(first))
        second["name"] = "again"
        second["typed_config"]["filter_config"]["value"].update(settings)
        filters.insert(1, second)
        return yaml.safe_dump(tree)
    inside = start(change=twice)
    assert {inside.served_by() for _ in range(40)} == {"a", "b", "c"}
    assert inside.post(b'{"model": "unheard"}').status == 404
    assert inside.post(LONG).status == 200


def test_in_process_listeners_with_same_settings_share_picker(start):
    def twice(text):
        tree = yaml.safe_load(text)
        listeners = tree["static_resources"]["listeners"]
        listeners.append({**json.loads(json.dumps(listeners[0])), "name": "other"})
        return yaml.safe_dump(tree)
    inside = start(change=twice)
    for listener in json.loads(inside.envoy.ask("/listeners?format=json"))["listener_statuses"]:
        bound = listener["local_address"]["socket_address"]
        inside.address = f"{bound['address']}:{bound['port_value']}"
        assert inside.post().status == 200
    assert inside.envoy.log_text().count("picker in Envoy: ready") == 1


# ---- configuration -------------------------------------------------------------------------------

def test_in_process_program_without_its_functions_is_told():
    """An Envoy before 1.40 has not all of the functions: here none, as another program loads the library."""
    module = os.path.join(os.path.dirname(binary()), "envoy", "libsluice_envoy.so")
    program = ("import ctypes, sys; start = ctypes.CDLL(sys.argv[1]).envoy_dynamic_module_on_program_init; "
               "start.restype = ctypes.c_char_p; print(start())")
    done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    assert "libsluice_envoy.so needs Envoy 1.40 or a later one" in done.stderr
    assert "missing=envoy_dynamic_module_callback_http_filter_get_worker_index" in done.stderr


@pytest.mark.parametrize("config, says", [
    ("{config: /nowhere/pool.yaml}", "/nowhere/pool.yaml"),
    ("{}", "expected the settings"),
    ("{grpc: \"127.0.0.1:9002\"}", "has no effect in Envoy"),
    ("{config: pool.yaml, no-such-setting: 1}", "no-such-setting"),
    ("{endpoint: [\"127.0.0.1:8000\"], max-body-size: enormous}", "max-body-size"),
])
def test_in_process_bad_settings_are_refused_at_start(tmp_path, config, says):
    text = deployed("in-process.yaml", {LISTENER: "127.0.0.1:0"}).replace("{config: pool.yaml}", config)
    with pytest.raises(AssertionError) as refused:
        Envoy(tmp_path, text).kill()
    assert says in str(refused.value)
