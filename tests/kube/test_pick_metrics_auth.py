"""`sluice pick --metrics-auth`: a client of the metrics may read what the API server says that its token's user may
read. The API server is a real one; what is between it and the picker may break."""
import json

import pytest

from lib import http1
from lib.kube import write
from lib.relay import Relay
from lib.server import run

POOL = "endpoints: [127.0.0.1:1]\n"
# Of the picker, as upstream's role has it, and of a client that scrapes.
REVIEWS = [{"apiGroups": [group], "resources": [name], "verbs": ["create"]} for group, name in (
    ("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews"))]
READER = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


@pytest.fixture
def start(start_picker):
    return lambda file: start_picker(POOL, "--metrics-auth", "--kubeconfig", file)


@pytest.fixture
def picker_account(cluster, namespace):
    return cluster.service_account(namespace, cluster_rules=REVIEWS)


@pytest.fixture
def reader(cluster, namespace):
    return cluster.service_account(namespace, cluster_rules=READER)


def read(picker, token=None, path="/metrics", method="GET"):
    fields = [("Authorization", f"Bearer {token}")] if token else []
    return http1.request(picker.metrics_address, method, path, fields=fields)


def statuses(picker, *tokens, path="/metrics"):
    return [read(picker, token, path).status for token in tokens]


def test_metrics_auth_of_users_that_may_read(cluster, namespace, start, picker_account, reader):
    """Of each page: who may, who may not, and who is unknown."""
    picker = start(picker_account.kubeconfig())
    other = cluster.service_account(namespace)
    answer = read(picker, reader.token)
    assert answer.status == 200 and b"llm_d_epp_ready_endpoints" in answer.body
    for token in (None, "not.a.token", "x" * 4000):
        answer = read(picker, token)
        assert answer.status == 401 and answer.get("WWW-Authenticate") == "Bearer", token
    answer = read(picker, other.token)
    assert answer.status == 403 and "may not read this page" in json.loads(answer.body)["error"]
    assert read(picker, reader.token, "/debug/state").status == 403
    assert read(picker, reader.token, method="HEAD").status == 403
    assert statuses(picker, cluster.admin_token, path="/debug/state") == [200]
    assert read(picker, reader.token, "/none").status == 404
    for secret in reader.token, other.token, "not.a.token":
        assert secret not in picker.log_text()


def test_metrics_auth_asks_once_for_many_requests(cluster, namespace, start, picker_account, reader):
    picker = start(picker_account.kubeconfig())
    other = cluster.service_account(namespace)
    assert statuses(picker, *[reader.token] * 20, *[other.token] * 20) == [200] * 20 + [403] * 20
    asked = cluster.count_requests_of(picker_account)
    assert {resource: n for (_, _, resource, _, _), n in asked.items()} == {"tokenreviews": 2, "subjectaccessreviews": 2}


def test_metrics_auth_without_the_right_to_ask(cluster, namespace, start, reader):
    """An error of the API server is one of the request: the picker goes on, and asks again."""
    account = cluster.service_account(namespace)
    picker = start(account.kubeconfig())
    answer = read(picker, reader.token)
    assert answer.status == 500 and "tokenreviews" in json.loads(answer.body)["error"]
    assert "client of the metrics not authorized" in picker.log_text()
    cluster.service_account(namespace, cluster_rules=REVIEWS, name=account.name)
    picker.wait_for(lambda: read(picker, reader.token).status == 200, "the right to ask")


@pytest.fixture
def relayed(cluster, start, tmp_path, picker_account):
    """A picker, and what is between it and the API server."""
    with Relay(cluster.port) as relay:
        with open(picker_account.kubeconfig(), encoding="ascii") as file:
            text = file.read().replace(f":{cluster.port}", f":{relay.port}")
        picker = start(write(str(tmp_path), "config", text))
        yield picker, relay
        picker.stop()


def test_metrics_auth_while_the_api_server_does_not_answer(cluster, relayed, reader):
    """Requests are answered with an error, not held for ever; known clients are served; then it is asked again."""
    picker, relay = relayed
    assert statuses(picker, reader.token) == [200]
    relay.open.clear()
    relay.cut()
    assert statuses(picker, reader.token, cluster.admin_token) == [200, 500]
    relay.open.set()
    picker.wait_for(lambda: read(picker, cluster.admin_token).status == 200, "an answer")


def test_metrics_auth_ends_while_the_api_server_is_asked(relayed, reader):
    """A picker that ends does not wait for the API server: the request that does is answered."""
    picker, relay = relayed
    relay.open.clear()
    with http1.Connection(picker.metrics_address) as connection:
        connection.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" %
                        reader.token.encode())
        assert statuses(picker, None) == [401]  # later than the other one's
        picker.signal()
        assert connection.read_answer("GET").status == 500
        assert picker.wait_exit() == 0


def test_metrics_auth_needs_a_cluster(tmp_path):
    file = write(str(tmp_path), "pool.yaml", POOL)
    done = run("pick", "--config", file, "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--metrics-auth")
    assert done.returncode == 1 and "--metrics-auth: expected a kubeconfig" in done.stderr
    done = run("pick", "--config", file, "--kubeconfig", file, "--check")
    assert done.returncode == 2 and "--kubeconfig is of a cluster: it needs --kube" in done.stderr
