"""NaN and infinities in JSON answers that strict readers take: --non-finite and the parameter non_finite, for infer,
generate, generate_stream and MIP. What Sluice's own client reads is the same whatever the server writes."""
import json
import subprocess

import pytest

from lib import http1, mip
from lib.events import parse_events
from lib.repository import DECOUPLED, FREE, Identity
from lib.server import run

NUMBERS = "[NaN, 0.5, Infinity, -Infinity]"
WRITTEN = {"null": [None, 0.5, None, None], "strings": ["NaN", 0.5, "Infinity", "-Infinity"]}


def strict(text):
    """As Go, JavaScript and jq read it: without the words that JSON lacks."""
    def refuse(word):
        raise AssertionError(f"{word} is no JSON: {text}")
    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def start(start_server, tmp_path):
    folder = tmp_path / "models"
    for model in [*DECOUPLED, Identity("floats", [("FP32", FREE)])]:
        model.write(str(folder))

    def start_with(mode):
        return start_server("--model-repository", folder, "--non-finite", mode, "--mip", "tcp://127.0.0.1:0=floats")
    return start_with


@pytest.mark.parametrize("mode", WRITTEN)
def test_non_finite_setting_counts_for_each_json_answer(start, mode):
    server = start(mode)
    body = f'{{"inputs":[{{"name":"INPUT0","shape":[4],"datatype":"FP32","data":{NUMBERS}}}]}}'.encode()
    answer = http1.request(server.address, "POST", "/v2/models/floats/infer", body)
    assert strict(answer.body)["outputs"][0]["data"] == WRITTEN[mode]
    done = subprocess.run(["curl", "-s", "-d", f'{{"INPUT0": {NUMBERS}, "responses": 2}}',
                           f"http://{server.address}/v2/models/many/generate_stream"],
                          stdout=subprocess.PIPE, check=True, timeout=http1.PATIENCE)
    events = parse_events(done.stdout)
    assert len(events) == 2
    for event in events:
        assert event["OUTPUT0"] == WRITTEN[mode]
    with mip.Connection(server.mip_urls[0]) as connection:
        connection.send(mip.infer_request([[(mip.JSON, NUMBERS.encode())]]))
        _, item = connection.read_inference(1, 1)[0][0]
        assert strict(item) == WRITTEN[mode]


@pytest.mark.parametrize("mode, bits", [("words", "0000c07f0000003f0000807f000080ff"),
                                        ("strings", "0000c07f0000003f0000807f000080ff"),
                                        ("null", "0000c07f0000003f0000c07f0000c07f")])
def test_non_finite_answer_is_read_by_infer_command(start, tmp_path, mode, bits):
    server = start(mode)
    done = run("infer", f"http://{server.address}", "floats", "--input", f"INPUT0={NUMBERS}", "--format", "raw",
               "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_bytes().hex() == bits
