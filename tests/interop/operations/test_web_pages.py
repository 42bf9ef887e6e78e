"""What a web page may do to a server that its browser reaches: a page of another site, one whose name leads to
the server (DNS rebinding), and one of an allowed origin, in a real browser. The rules for single
requests are in tests/scenario/063-web-pages.txt."""
import json

import pytest

from lib import browser, foreign_pages, http1, metrics
from lib.repository import Identity
from lib.tls_client import Pki

INFER = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1]}]})
# What a page of another site sends without a preflight, and what it would do.
FORGED = {
    "/v2/repository/models/spare/load": "{}",
    "/v2/repository/models/m/unload": "{}",
    "/v2/logging": json.dumps({"log_error": False, "log_info": False, "log_warning": False}),
    "/v2/trace/setting": json.dumps({"trace_rate": "1"}),
    "/v2/systemsharedmemory/region/r/register": json.dumps({"key": "/k", "offset": 0, "byte_size": 8}),
    "/v2/models/m/infer": INFER,
    "/v2/models/m/generate": "{}",
    "/v2/repository/index": "{}",
}
SIMPLE_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")


@pytest.fixture
def serve(start_server, tmp_path):
    def start(*flags, **options):
        for name in ("m", "spare"):
            Identity(name, [("FP32", [-1])]).write(str(tmp_path / "models"))
        return start_server("--model-repository", tmp_path / "models", "--model-control-mode", "explicit",
                            "--load-model", "m", *flags, metrics_at="127.0.0.1:0", **options)
    return start


@pytest.fixture
def page(tmp_path):
    with browser.Browser(str(tmp_path / "profile"), flags=(
            "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP app.example 127.0.0.1",)) as opened:
        yield opened


def state(server):
    """What a forged request would change."""
    ready = [http1.request(server.address, "GET", f"/v2/models/{name}/ready").status for name in ("m", "spare")]
    return [ready] + [http1.request(server.address, "GET", path).body for path in (
        "/v2/logging", "/v2/trace/setting", "/v2/systemsharedmemory/status")]


def refused(server, reason):
    """The requests that were refused for this reason."""
    return metrics.read(server.address).get(f'sluice_errors_total{{protocol="http",reason="{reason}"}}', 0)


def infers(server):
    return http1.request(server.address, "POST", "/v2/models/m/infer", INFER.encode()).status == 200


def ask(page, url, **options):
    """fetch() on the page. Returns: the status and the body, or the name of the error; 0 where the browser
    does not tell."""
    return page.run(f"fetch({json.dumps(url)}, {json.dumps(options)})"
                    ".then(async got => [got.status, await got.text()], why => [why.name, ''])")


def post_form(page, url, kind):
    """A form that the page submits by itself, into a frame; until the frame has the answer."""
    page.run(f"""new Promise(done => {{
        const frame = document.createElement('iframe'), form = document.createElement('form');
        frame.name = 'into' + Math.random();
        Object.assign(form, {{ method: 'POST', enctype: {json.dumps(kind)}, action: {json.dumps(url)}, target: frame.name }});
        form.innerHTML = `<input name='{{"a":"' value='"}}'>`;
        document.body.append(frame, form);
        frame.onload = () => done();
        form.submit();
    }})""")


# ---- a page of another site ------------------------------------------------------------------------

@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost"])
def test_foreign_page_changes_nothing(serve, page, host):
    """The browser says cross-site or same-site: a port does not make a site."""
    server = serve("--allow-client-shm", "true")
    before, n = state(server), 0
    with foreign_pages.serve() as port:
        page.open(f"http://{host}:{port}/")
        for path, body in FORGED.items():
            url = f"http://{server.address}{path}"
            for kind in SIMPLE_TYPES:
                assert ask(page, url, method="POST", mode="no-cors", body=body, headers={"Content-Type": kind}) == [0, ""]
            ask(page, url, method="POST", mode="no-cors")  # without a type
            assert ask(page, url, method="POST", body=body, headers={"Content-Type": "application/json"})[0] == "TypeError"
            n += 5
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            post_form(page, f"http://{server.address}/v2/repository/models/m/unload", kind)
        page.run(f"navigator.sendBeacon('http://{server.address}/v2/repository/models/m/unload', '{{}}')")
        server.wait_for(lambda: refused(server, "FOREIGN_ORIGIN") == n + 4, "every request refused")
    assert state(server) == before and infers(server)


def test_foreign_page_reads_nothing(serve, page):
    """Not even whether a resource is there: an image or a frame of it fails as one that is not."""
    server = serve()
    with foreign_pages.serve() as port:
        page.open(f"http://evil.example:{port}/")
        for address, path in ((server.address, "/v2/models"), (server.address, "/metrics"), (server.address, "/absent"),
                              (server.metrics_address, "/"), (server.metrics_address, "/metrics"),
                              (server.metrics_address, "/status.json"), (server.metrics_address, "/debug/state")):
            before = refused(server, "FOREIGN_ORIGIN")
            assert ask(page, f"http://{address}{path}")[0] == "TypeError"
            assert ask(page, f"http://{address}{path}", mode="no-cors") == [0, ""]
            page.run(f"new Promise(done => {{ const one = new Image(); one.onerror = one.onload = done; "
                     f"one.src = 'http://{address}{path}?image'; }})")
            page.run(f"new Promise(done => {{ const one = document.createElement('iframe'); one.onload = done; "
                     f"one.src = 'http://{address}{path}'; document.body.append(one); }})")
            assert refused(server, "FOREIGN_ORIGIN") == before + 4, path
        # Health is open: a page may learn that there is a server.
        assert ask(page, f"http://{server.address}/v2/health/ready", mode="no-cors") == [0, ""]
        assert ask(page, f"http://{server.metrics_address}/v2/health/live", mode="no-cors") == [0, ""]
        assert refused(server, "FOREIGN_ORIGIN") == before + 4


# Ways by which a page sends a request, besides fetch() and forms; each ends when the browser has its answer.
WAYS = {
    "socket": "const one = new WebSocket(url.replace('http', 'ws')); one.onclose = done;",
    "events": "const one = new EventSource(url); one.onerror = () => { one.close(); done(); };",
    "script": "const one = document.createElement('script'); one.onerror = one.onload = done; one.src = url; document.body.append(one);",
    "style": "const one = document.createElement('link'); one.rel = 'stylesheet'; one.onerror = one.onload = done; one.href = url; document.head.append(one);",
    "object": "const one = document.createElement('object'); one.onerror = one.onload = done; one.data = url; document.body.append(one);",
    "media": "const one = document.createElement('video'); one.onerror = done; one.src = url;",
    "request": "const one = new XMLHttpRequest(); one.onloadend = done; one.open('POST', url); one.send('{}');",
    "worker": "const one = new Worker(URL.createObjectURL(new Blob([`fetch('${url}', { method: 'POST', mode: 'no-cors', body: '{}' }).finally(() => postMessage(0))`]))); one.onmessage = done;",
}


@pytest.mark.parametrize("way", WAYS)
def test_foreign_page_gets_nothing_by(serve, page, way):
    server = serve()
    url = f"http://{server.address}/v2/repository/index"
    with foreign_pages.serve() as port:
        page.open(f"http://evil.example:{port}/")
        page.run(f"new Promise(done => {{ const url = {json.dumps(url)}; {WAYS[way]} }})")
        server.wait_for(lambda: refused(server, "FOREIGN_ORIGIN") == 1, "the request refused")
        page.run(f"(() => {{ const link = document.createElement('a'); link.href = '#here'; link.ping = {json.dumps(url)};"
                 " document.body.append(link); link.click(); })()")
        server.wait_for(lambda: refused(server, "FOREIGN_ORIGIN") == 2, "the ping refused")
    assert infers(server)


def test_foreign_page_cannot_hide_its_origin(serve, page):
    """A frame in a sandbox, and a redirect of a form, have the origin null."""
    server = serve()
    unload = f"http://{server.address}/v2/repository/models/m/unload"
    before = state(server)
    with foreign_pages.serve(on=(307, {"Location": unload}, b"")) as port:
        page.open(f"http://evil.example:{port}/")
        script = f"fetch('{unload}', {{ method: 'POST', mode: 'no-cors', body: '{{}}' }}).finally(() => parent.postMessage('sent', '*'))"
        page.run(f"""new Promise(done => {{
            const frame = document.createElement('iframe');
            frame.sandbox = 'allow-scripts';
            frame.srcdoc = {json.dumps("<script>" + script + "</script>")};
            window.onmessage = done;
            document.body.append(frame);
        }})""")
        post_form(page, f"http://evil.example:{port}/on", "text/plain")
        assert ask(page, f"http://evil.example:{port}/on", method="POST", mode="no-cors", body="{}") == [0, ""]
    assert refused(server, "FOREIGN_ORIGIN") == 3
    assert state(server) == before and infers(server)


def test_file_is_foreign_page(serve, page, tmp_path):
    server = serve()
    (tmp_path / "page.html").write_text("<!doctype html>")
    page.open(f"file://{tmp_path}/page.html")
    before = state(server)
    assert ask(page, f"http://{server.address}/v2/repository/models/m/unload", method="POST", mode="no-cors",
               body="{}") == [0, ""]
    assert ask(page, f"http://{server.address}/v2/models")[0] == "TypeError"
    assert refused(server, "FOREIGN_ORIGIN") == 2 and state(server) == before and infers(server)


def test_foreign_page_makes_no_grpc_call(serve, tmp_path):
    """Over TLS a browser speaks HTTP/2. It sends the type of gRPC only after a preflight; here it believes any
    certificate."""
    cert, key = Pki(tmp_path).server_files
    server = serve("--grpc-tls-cert", cert, "--grpc-tls-key", key, grpc=("grpcs://127.0.0.1:0", "grpc://127.0.0.1:0"))
    call = "inference.GRPCInferenceService/RepositoryModelUnload"
    frame = "new Uint8Array([0, 0, 0, 0, 3, 18, 1, 109])"  # RepositoryModelUnloadRequest { model_name: "m" }
    before = state(server)
    with browser.Browser(str(tmp_path / "profile"), flags=("--ignore-certificate-errors",)) as page, \
            foreign_pages.serve() as port:
        page.open(f"http://127.0.0.1:{port}/")

        def post(url, kind, mode):
            return page.run(f"fetch('{url}', {{ method: 'POST', mode: '{mode}', headers: {{ 'Content-Type': '{kind}' }},"
                            f" body: {frame} }}).then(got => got.type, why => why.name)")
        secure, plain = (address.rpartition(":")[2] for address in server.grpc_addresses)
        assert post(f"https://127.0.0.1:{secure}/{call}", "application/grpc", "cors") == "TypeError"
        for kind in ("application/grpc", "text/plain"):  # the former is left out
            assert post(f"https://127.0.0.1:{secure}/{call}", kind, "no-cors") == "opaque"
            assert post(f"http://127.0.0.1:{plain}/{call}", kind, "no-cors") == "opaque"
    assert state(server) == before and infers(server)


def test_link_from_foreign_page_opens(serve, page):
    """A link in a wiki or a dashboard opens the pages, and their own requests are answered."""
    server = serve()
    with foreign_pages.serve() as port:
        for address, done in ((server.address, "!!document.querySelector('details')"),
                              (server.metrics_address, "Number(document.body?.dataset.samples) >= 1")):
            page.open(f"http://evil.example:{port}/")
            page.run(f"location.href = 'http://{address}/'")
            page.wait(f"location.host === '{address}' && {done}")
    assert refused(server, "FOREIGN_ORIGIN") == 0


# ---- DNS rebinding ---------------------------------------------------------------------------------

def test_rebound_name_gets_nothing(serve, page):
    """A page that has been loaded from evil.example, whose name leads to this machine by now: for the browser
    the server is the page's own. The page is that of health here, which is open."""
    server = serve()
    before = state(server)
    for address in (server.address, server.metrics_address):
        port = address.rpartition(":")[2]
        page.open(f"http://evil.example:{port}/v2/health/live")
        assert page.run("origin") == f"http://evil.example:{port}"
        for path in ("/", "/v2", "/v2/models", "/v2/logging", "/metrics", "/status.json", "/debug/state"):
            status, text = ask(page, path, headers={"Accept": "text/html", "X-Forwarded-For": "10.0.0.1"})
            assert status == 421, (address, path, status)
            assert "--allowed-host" in text and "evil.example" in text
    page.open(f"http://evil.example:{server.address.rpartition(':')[2]}/v2/health/live")
    for path, body in FORGED.items():
        assert ask(page, path, method="POST", body=body, headers={"Content-Type": "application/json"})[0] == 421
    assert ask(page, "/v2/models", method="PUT")[0] == 421
    assert state(server) == before and infers(server)


def test_allowed_host_is_served_by_name(serve, page):
    server = serve("--allowed-host", "app.example")
    port = server.address.rpartition(":")[2]
    page.open(f"http://app.example:{port}/")
    page.wait("!!document.querySelector('details')")
    assert ask(page, "/v2/models/m/infer", method="POST", body=INFER)[0] == 200
    page.open(f"http://evil.example:{port}/v2/health/live")
    assert ask(page, "/v2/models")[0] == 421


def test_picker_pages_are_not_for_other_sites(start_picker, page):
    picker = start_picker("endpoints: [127.0.0.1:1]\n")
    address = picker.metrics_address
    with foreign_pages.serve() as port:
        page.open(f"http://evil.example:{port}/")
        for path in ("/", "/metrics", "/status.json", "/debug/state", "/debug/pick?path=/"):
            assert ask(page, f"http://{address}{path}")[0] == "TypeError"
        page.open(f"http://evil.example:{address.rpartition(':')[2]}/")
        assert ask(page, "/status.json")[0] == 421
        page.open(f"http://{address}/")
        page.wait("Number(document.body?.dataset.samples) >= 1")


# ---- allowed origins -------------------------------------------------------------------------------

def test_allowed_origin_reads_answers(serve, page):
    with foreign_pages.serve() as port, foreign_pages.serve() as other_port:
        server = serve("--allowed-origin", f"http://app.example:{port}")
        url, before = f"http://{server.address}", state(server)
        page.open(f"http://app.example:{port}/")
        headers = {"Content-Type": "application/json", "X-Mine": "1"}
        status, text = ask(page, url + "/v2/models/m/infer", method="POST", body=INFER, headers=headers)
        assert status == 200 and json.loads(text)["outputs"][0]["data"] == [1]
        assert ask(page, url + "/v2/models/m/infer", method="POST", body="{", headers=headers)[0] == 400  # readable
        assert ask(page, url + "/v2/models")[0] == 200 and ask(page, url + "/v2/health/ready")[0] == 200
        # Binary tensors: the page sends and reads the length of the JSON.
        size = page.run(f"fetch('{url}/v2/models/m/infer', {{ method: 'POST', headers: {{ 'Inference-Header-Content-Length': {len(BINARY)} }},"
                        f" body: {json.dumps(BINARY)} + '\\0\\0\\0\\0' }}).then(async got => [got.headers.get('Inference-Header-Content-Length'),"
                        " (await got.arrayBuffer()).byteLength])")
        assert int(size[0]) + 4 == size[1]
        for path in ("/v2/logging", "/v2/repository/models/m/unload"):
            assert ask(page, url + path, method="POST", body="{}", headers=headers)[0] == "TypeError"
            assert ask(page, url + path, method="POST", mode="no-cors", body="{}") == [0, ""]
        assert ask(page, f"http://{server.metrics_address}/metrics")[0] == "TypeError"
        page.open(f"http://app.example:{other_port}/")
        assert ask(page, url + "/v2/models/m/infer", method="POST", body=INFER, headers=headers)[0] == "TypeError"
        assert state(server) == before and infers(server)


def test_allowed_control_origin_changes_models(serve, page):
    with foreign_pages.serve() as port:
        server = serve("--allowed-origin", f"control=http://app.example:{port}")
        page.open(f"http://app.example:{port}/")
        headers = {"Content-Type": "application/json"}
        load = f"http://{server.address}/v2/repository/models/spare/load"
        assert ask(page, load, method="POST", body="{}", headers=headers)[0] == 200
        assert http1.request(server.address, "GET", "/v2/models/spare/ready").status == 200
        assert ask(page, f"http://{server.metrics_address}/metrics")[0] == 200


def test_allowed_origin_still_needs_key(serve, page, tmp_path):
    keys = tmp_path / "keys.yaml"
    keys.write_text("infer: [a-key]\nheader: x-api-key\n")
    with foreign_pages.serve() as port:
        server = serve("--allowed-origin", "*", "--keys", keys)
        page.open(f"http://app.example:{port}/")
        url, headers = f"http://{server.address}/v2/models/m/infer", {"Content-Type": "application/json"}
        status, text = ask(page, url, method="POST", body=INFER, headers=headers)
        assert status == 401 and "key" in text
        assert ask(page, url, method="POST", body=INFER, headers=headers | {"X-Api-Key": "a-key"})[0] == 200


BINARY = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32",
                                 "parameters": {"binary_data_size": 4}}],
                     "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]})
