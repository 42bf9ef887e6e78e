"""Bodies that grow when they are decompressed: each resource takes as much as it can use, and the server
holds no more than that. The limits themselves are in tests/scenario/044-limits.txt."""
import gzip

import pytest

from lib import http1, server
from lib.server import Server

pytestmark = pytest.mark.plain

BOMB = gzip.compress(bytes(1 << 28), 9)  # 256 MB in 260 kB
RESOURCES = ("/v2/repository/index", "/v2/repository/models/id_fp32/unload", "/v2/logging",
             "/v2/trace/setting", "/v2/models/id_fp32/trace/setting",
             "/v2/systemsharedmemory/region/r/register", "/v2/systemsharedmemory/unregister")
GOOD = b'{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}'
GZIP = ("Content-Encoding", "gzip")


def post(address, path, body, *headers):
    return http1.request(address, "POST", path, body, headers)


@pytest.mark.parametrize("path, limit", [(path, 65536) for path in RESOURCES]
                         + [("/v2/models/id_fp32/infer", 1 << 20)])
def test_inflated_body_stops_at_limit_of_resource(tmp_path, repositories, path, limit):
    with Server(tmp_path, ["--model-repository", repositories("default"), "--max-body-size", "512MiB",
                           "--max-json-size", "1MiB"]) as live:
        assert post(live.address, "/v2/models/id_fp32/infer", gzip.compress(GOOD), GZIP).status == 200
        before = live.peak_rss_bytes()
        for _ in range(3):
            answer = post(live.address, path, BOMB, GZIP)
            assert answer.status == 413 and str(limit) in answer.body.decode(), answer
        assert post(live.address, "/v2/models/id_fp32/infer", gzip.compress(GOOD), GZIP).status == 200
        if not server.is_sanitized():
            assert live.peak_rss_bytes() - before < 16e6
        live.wait_at_rest()
