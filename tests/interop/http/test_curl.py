"""curl, as people and scripts use it: files up, files down, its own 100-continue, gzip, HTTP/1.0, a Unix
socket. README's examples are of this kind."""
import gzip
import json
import struct
import subprocess
import zlib

import pytest

from lib import http1

BODY = b'{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}'
INFER = "/v2/models/id_fp32/infer"


class Curl:
    def __init__(self, server, folder):
        self.server = server
        self.folder = folder

    def __call__(self, path, *args, body=None, binary=False):
        """Returns: (status, body, what curl -v said)."""
        out = self.folder / "out"
        command = ["curl", "-sS", "-v", "--max-time", str(int(http1.PATIENCE)), "-o", str(out),
                   "-w", "%{http_code}", *args]
        if body is not None:
            sent = self.folder / "sent"
            sent.write_bytes(body)
            command += ["--data-binary", f"@{sent}"]
        done = subprocess.run([*command, f"http://{self.server.address}{path}"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = done.stderr.decode(errors="replace")
        assert done.returncode == 0, said
        data = out.read_bytes() if out.exists() else b""
        return int(done.stdout), data if binary else data.decode(), said


@pytest.fixture
def curl(client_server, tmp_path):
    return Curl(client_server, tmp_path)


def data_of(text):
    return json.loads(text)["outputs"][0]["data"]


def test_curl_json(curl):
    status, text, _ = curl(INFER, "-H", "Content-Type: application/json", body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])


def test_curl_raw_binary(curl):
    sent = struct.pack("<1000f", *range(1000))
    status, data, said = curl(INFER, "-H", "Inference-Header-Content-Length: 0",
                              body=sent, binary=True)
    assert status == 200 and data.endswith(sent)
    assert f"Inference-Header-Content-Length: {len(data) - len(sent)}" in said


def test_curl_get_and_head(curl):
    assert curl("/v2/health/ready")[0] == 200
    assert curl("/v2/models/id_fp32/ready")[0] == 200
    status, text, said = curl("/v2", "--head")
    # curl writes the head where the body would go.
    assert status == 200 and "Content-Type: application/json" in said
    assert text.startswith("HTTP/1.1 200") and text.endswith("\r\n\r\n")


def test_curl_errors(curl):
    status, text, _ = curl("/v2/models/nope")
    assert status == 404 and "nope" in json.loads(text)["error"]
    status, text, said = curl(INFER)
    assert status == 405 and "Allow: POST" in said


def test_curl_expect_100_continue_sends_body(curl):
    sent = bytes(range(256)) * 8192
    status, data, said = curl("/v2/models/id_uint8/infer", "-H", "Expect: 100-continue",
                              "-H", "Inference-Header-Content-Length: 0", body=sent, binary=True)
    assert status == 200 and data.endswith(sent)
    assert "HTTP/1.1 100 Continue" in said


def test_curl_expect_of_refused_request_sends_no_body(curl):
    status, text, said = curl("/v2/models/nope/infer", "-H", "Expect: 100-continue",
                              body=b"x" * 2_000_000)
    assert status == 404 and "nope" in json.loads(text)["error"]
    assert "100 Continue" not in said


def test_curl_chunked_request(curl):
    status, text, _ = curl(INFER, "-H", "Transfer-Encoding: chunked", body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_curl_compressed_request(curl, coding, pack):
    status, text, _ = curl(INFER, "-H", f"Content-Encoding: {coding}", body=pack(BODY))
    assert (status, data_of(text)) == (200, [1, 2, 3])


def test_curl_compressed_answer(curl):
    status, text, said = curl(INFER, "--compressed", body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])
    assert "Content-Encoding: gzip" in said or "Content-Encoding: deflate" in said
    status, text, said = curl("/v2", "--compressed")
    assert status == 200 and json.loads(text)["name"] == "sluice"
    assert "Content-Encoding" not in said


def test_curl_http_1_0(curl):
    status, text, said = curl(INFER, "--http1.0", body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])
    assert "POST /v2/models/id_fp32/infer HTTP/1.0" in said


def test_curl_connection_is_reused(curl):
    other = f"http://{curl.server.address}/v2/models/id_fp32/ready"
    status, _, said = curl("/v2/health/live", "-o", "/dev/null", other)
    assert status in (200, 200200) and said.count("* Connected to ") == 1


def test_curl_over_unix_socket(curl):
    path = curl.server.addresses[1].removeprefix("unix:")
    status, text, _ = curl(INFER, "--unix-socket", path, body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])


def test_curl_encoded_model_name(curl):
    status, text, _ = curl("/v2/models/id%20with%20space/infer", body=BODY)
    assert (status, data_of(text)) == (200, [1, 2, 3])


def test_curl_path_traversal_is_404(curl):
    assert curl("/v2/models/../../etc/passwd", "--path-as-is")[0] == 404
    assert curl("/v2/models/%2e%2e/ready", "--path-as-is")[0] == 404
