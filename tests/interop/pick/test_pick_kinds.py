"""A server that fails one kind of requests, as it lacks one of several models, over ext-proc: it gets the others."""
import pytest

from lib.pick_client import Proxy, answer_headers, body, endpoint_of, headers
from lib.picker import Picker

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
POOL = f"endpoints: [{A}, {B}, {C}]\nmodels: [rare, common]\n"
AVOIDED = "sluice_pick_kinds_avoided_total"
FIELDS = {"content-type": "application/json"}


@pytest.fixture
def picker(tmp_path):
    with Picker(tmp_path, POOL) as picker:
        yield picker
        picker.check_log()


def serve(proxy, path, model, lacking, hint=None):
    """One request, of which the model is in the body; `hint`: the only endpoint. Returns: where it was sent."""
    stream = proxy.stream(headers(path, fields=FIELDS, config="FULL_DUPLEX_STREAMED NONE", hint=hint),
                          body(b'{"model": "%s", "prompt": ""}' % model.encode(), end=True))
    picked = endpoint_of(stream.next())
    missing = (picked, path, model) == lacking
    answer = answer_headers(404 if missing else 200, end=True)
    answer.response_headers.headers.headers.add(key="x-envoy-upstream-service-time", raw_value=b"1")
    stream.send(answer)
    stream.close()
    return picked


@pytest.mark.parametrize("lacking", [(A, "/v1/completions", "rare"), (A, "/v1/embeddings", "common")])
def test_kind_that_one_server_lacks_is_sent_to_others(picker, lacking):
    """By model, and by path of the same model. The server gets its share of the rest."""
    _, path, model = lacking
    with Proxy(picker.grpc_addresses[0]) as proxy:
        n_sent = 0
        while picker.numbers()[AVOIDED] == 0 and n_sent < 100:
            serve(proxy, path, model, lacking, hint=B)
            serve(proxy, path, model, lacking, hint=A)
            serve(proxy, "/v1/completions", "common", lacking, hint=A)  # no row of failures
            n_sent += 1
        assert picker.numbers()[AVOIDED] == 1
        sent = [serve(proxy, path, model, lacking) for _ in range(96)]
        assert sent.count(A) <= 96 // 32  # trials
        assert [serve(proxy, "/v1/completions", "common", lacking) for _ in range(120)].count(A) >= 10
        assert picker.numbers()["sluice_pick_ejections_total"] == 0
