"""HTTP and gRPC over TLS with real clients: who is let in, who is told what when not, and files that
change while all of them ask."""
import concurrent.futures
import os
import socket
import ssl
import subprocess
import threading
import time

import grpc
import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from lib import http1, metrics
from lib.certificates import Identity
from lib.server import run
from lib.tls_client import Pki, client_context, connect

PLAIN = "http://127.0.0.1:0"
TLS = "https://127.0.0.1:0"
INFER = "/v2/models/id_fp32/infer"
BODY = b'{"inputs":[{"name":"INPUT0","shape":[3],"datatype":"FP32","data":[1,2,3]}]}'


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


class Secure:
    """A server with HTTP in plain and over TLS, and gRPC over TLS."""

    def __init__(self, server):
        self.server = server
        self.port = int(server.addresses[1].rsplit(":", 1)[1])
        self.url = f"https://127.0.0.1:{self.port}"
        self.grpc_port = int(server.grpc_addresses[0].rsplit(":", 1)[1])

    def metric(self, name):
        return metrics.read(self.server.address).get(name, 0)


@pytest.fixture
def start_secure(start_server, repositories, pki):
    def start(*flags, files=None, mutual=False, listen=(PLAIN, TLS), grpc_at=("grpcs://127.0.0.1:0",)):
        cert, key = files or pki.server_files
        given = ["--model-repository", repositories("default"), "--reload-interval", "50ms"]
        for protocol in ("http", "grpc"):
            given += [f"--{protocol}-tls-cert", cert, f"--{protocol}-tls-key", key]
            given += [f"--{protocol}-tls-client-ca", pki.client_ca] if mutual else []
        return Secure(start_server(*given, *flags, listen=listen, grpc=grpc_at))
    return start


@pytest.fixture
def secure(start_secure):
    made = start_secure()
    yield made
    made.server.wait_at_rest()


def curl(url, *args, body=None, ca=None):
    """Returns: (exit code, status, body, what curl -v said)."""
    command = ["curl", "-sS", "-v", "--max-time", str(int(http1.PATIENCE)), "-w", "\n%{http_code}"]
    command += ["--cacert", ca] if ca else []
    command += ["--data-binary", "@-"] if body is not None else []
    done = subprocess.run([*command, *args, url], input=body or b"", check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    data, _, status = done.stdout.rpartition(b"\n")
    return done.returncode, int(status or 0), data, done.stderr.decode(errors="replace")


def exchange(sock, request=b"GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n"):
    sock.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(65536)
        if not piece:
            raise AssertionError(f"the server ended after {head!r}")
        head += piece
    head, _, body = head.partition(b"\r\n\r\n")
    length = int([line.split(b":")[1] for line in head.split(b"\r\n")
                  if line.lower().startswith(b"content-length")][0])
    while len(body) < length:
        body += sock.recv(65536)
    return int(head.split()[1]), body


# ---- who speaks it -------------------------------------------------------------------------------

def test_tls_curl(secure, pki):
    code, status, body, said = curl(secure.url + INFER, body=BODY, ca=pki.ca)
    assert (code, status) == (0, 200) and b"[1,2,3]" in body.replace(b".0", b"").replace(b" ", b""), said
    assert "ALPN" in said and "http/1.1" in said
    sent = os.urandom(4_000_000)
    code, status, body, said = curl(secure.url + "/v2/models/id_uint8/infer", "-H", "Expect: 100-continue",
                                    "-H", "Inference-Header-Content-Length: 0", body=sent, ca=pki.ca)
    assert (code, status) == (0, 200) and body.endswith(sent), said[-500:]
    code, status, _, said = curl(secure.url + "/v2", "--http1.0", ca=pki.ca)
    assert (code, status) == (0, 200), said
    code, _, _, said = curl(secure.url + "/v2")
    assert code == 60, said  # nobody told it whom to trust


def test_tls_connection_is_reused(secure, pki):
    before = secure.metric("sluice_tls_handshakes_total")
    code, _, _, said = curl(secure.url + "/v2/health/live", secure.url + "/v2", "-o", "/dev/null", ca=pki.ca)
    assert code == 0 and said.count("SSL connection using") == 1, said
    assert secure.metric("sluice_tls_handshakes_total") - before == 1


def ask_triton(client, module):
    array = numpy.arange(1000, dtype=numpy.float32)
    asked = module.InferInput("INPUT0", [1000], "FP32").set_data_from_numpy(array)
    answer = client.infer("id_fp32", [asked]).as_numpy("OUTPUT0")
    assert numpy.array_equal(answer, array)


def http_triton(secure, pki, **options):
    return tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{secure.port}", ssl=True, ssl_options={"ca_certs": pki.ca, **options},
        ssl_context_factory=lambda: ssl.create_default_context(cafile=pki.ca))


def test_tls_tritonclient_http(secure, pki):
    client = http_triton(secure, pki)
    assert client.is_server_live()
    ask_triton(client, tritonclient.http)
    client.close()
    stranger = tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{secure.port}", ssl=True,
        ssl_context_factory=lambda: ssl.create_default_context(cafile=pki.client_ca))
    with pytest.raises(ssl.SSLError):
        stranger.is_server_live()
    stranger.close()


def grpc_triton(secure, pki, files=None, ca=None):
    return tritonclient.grpc.InferenceServerClient(
        f"127.0.0.1:{secure.grpc_port}", ssl=True, root_certificates=ca or pki.ca,
        certificate_chain=files[0] if files else None, private_key=files[1] if files else None)


def test_tls_tritonclient_grpc(secure, pki):
    with grpc_triton(secure, pki) as client:
        assert client.is_server_live()
        ask_triton(client, tritonclient.grpc)
        large = numpy.zeros(2_000_000, dtype=numpy.float32)
        asked = tritonclient.grpc.InferInput("INPUT0", [2_000_000], "FP32").set_data_from_numpy(large)
        assert client.infer("id_fp32", [asked]).as_numpy("OUTPUT0").nbytes == large.nbytes
    with grpc_triton(secure, pki, ca=pki.client_ca) as client:
        with pytest.raises(InferenceServerException):
            client.is_server_live(client_timeout=10)


def test_tls_sluice_infer(secure, pki):
    asked = ["infer", secure.url, "id_fp32", "--input", "INPUT0=[1,2,3]"]
    done = run(*asked, "--cacert", pki.ca)
    assert done.returncode == 0 and '"OUTPUT0"' in done.stdout, done.stderr
    done = run(*asked)
    assert done.returncode == 1 and "certificate is refused" in done.stderr and "--cacert" in done.stderr
    assert run(*asked, "--insecure").returncode == 0
    assert run("ping", "-c", "1", secure.url, "--cacert", pki.ca).returncode == 0
    # A name that the certificate does not have.
    url = f"https://ip6-localhost:{secure.port}"
    done = run("ping", "-c", "1", url.replace("ip6-localhost", "127.0.0.2"), "--cacert", pki.ca)
    assert done.returncode == 1 and ("mismatch" in done.stdout or "refused" in done.stdout), done.stdout
    done = run("bench", secure.url, "id_fp32", "--cacert", pki.ca, "-c", "2", "-n", "100", "-w", "0", "--shape",
               "INPUT0=3")
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("infer", f"http://127.0.0.1:{secure.port}", "id_fp32", "--input", "INPUT0=[1]")
    assert done.returncode == 1 and "https://" in done.stderr, done.stderr


def test_tls_sluice_infer_errors(secure, pki, tmp_path):
    """Of its own files, and of a port for the other protocol. Nobody is asked for a passphrase."""
    def refused(*more, url=secure.url):
        done = run("infer", url, "id_fp32", "--input", "INPUT0=[1]", "--cacert", pki.ca, *more)
        assert done.returncode != 0 and "passphrase:" not in done.stderr + done.stdout
        return done.stderr
    cert, key = pki.client.write(tmp_path, b"secret")
    said = refused("--cert", cert, "--key", key)
    assert f"--key {key}: the key is encrypted" in said, said
    said = refused("--cert", cert)
    assert f"--cert {cert}: " in said and "--key FILE" in said, said
    said = refused("--cert", cert, "--key", pki.stranger_files[1])
    assert f"--key {pki.stranger_files[1]}: expected the private key of --cert" in said, said
    assert "another protocol" in refused(url=f"https://127.0.0.1:{secure.grpc_port}")


def test_tls_address_without_scheme(start_secure, pki, tmp_path):
    """An address without a scheme is over TLS when there is a certificate; a Unix socket is not."""
    server = start_secure(listen=(PLAIN, "127.0.0.1:0", f"unix:{tmp_path}/socket"),
                          grpc_at=("127.0.0.1:0",)).server
    plain, secure_at, local = server.addresses
    assert server.grpc_addresses[0].startswith("grpcs://")
    assert curl(secure_at + "/v2", ca=pki.ca)[1] == 200
    assert curl("http://localhost/v2", "--unix-socket", local.removeprefix("unix:"))[1] == 200
    assert curl(f"http://{plain}/v2")[1] == 200


# ---- who is let in -------------------------------------------------------------------------------

def test_tls_mutual_over_http(start_secure, pki):
    secure = start_secure(mutual=True)
    ours = ["--cert", pki.client_files[0], "--key", pki.client_files[1]]
    assert curl(secure.url + "/v2", *ours, ca=pki.ca)[1] == 200
    for version in ("--tls-max", "1.2"), ():
        code, status, _, said = curl(secure.url + "/v2", *version, ca=pki.ca)
        assert code != 0 and status == 0 and "alert" in said, said
        theirs = ["--cert", pki.stranger_files[0], "--key", pki.stranger_files[1]]
        code, status, _, said = curl(secure.url + "/v2", *version, *theirs, ca=pki.ca)
        assert code != 0 and status == 0 and "alert" in said, said
    assert secure.metric('sluice_tls_handshake_failures_total{reason="certificate"}') == 4
    log = secure.server.log_text()
    assert "the client sent no certificate" in log and "self-signed certificate" in log
    done = run("infer", secure.url, "id_fp32", "--input", "INPUT0=[1]", "--cacert", pki.ca)
    assert done.returncode == 1 and "--cert FILE" in done.stderr, done.stderr
    done = run("infer", secure.url, "id_fp32", "--input", "INPUT0=[1]", "--cacert", pki.ca, *ours)
    assert done.returncode == 0, done.stderr
    # Who was let in may come back without being looked at again, and only then.
    context = client_context(pki, files=pki.client_files)
    first = connect(pki, secure.port, context)
    exchange(first)
    again = connect(pki, secure.port, context, session=first.session)
    assert exchange(again)[0] == 200 and again.session_reused


def test_tls_mutual_over_grpc(start_secure, pki):
    secure = start_secure(mutual=True)
    with grpc_triton(secure, pki, pki.client_files) as client:
        ask_triton(client, tritonclient.grpc)
    for files in (None, pki.stranger_files):
        with grpc_triton(secure, pki, files) as client:
            with pytest.raises(InferenceServerException) as caught:
                client.is_server_live(client_timeout=10)
            assert caught.value.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")


@pytest.mark.parametrize("days, says, refuses", [
    ((-10, -1), "it expired on", "expired"),
    ((1, 10), "not valid before", "not yet valid"),
])
def test_tls_certificate_dates_are_reported(start_secure, pki, tmp_path, days, says, refuses):
    files = Identity("dated", pki.between, days=days).write(tmp_path / "dated")
    secure = start_secure(files=files)
    assert any(says in line.get("reason", "") for line in secure.server.log_lines())
    code, _, _, said = curl(secure.url + "/v2", ca=pki.ca)
    assert code == 60 and refuses in said, said
    assert curl(secure.url + "/v2", "--insecure")[1] == 200


def test_tls_session_resumption(secure, pki):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context(pki)
        context.maximum_version = version
        first = connect(pki, secure.port, context)
        assert exchange(first)[0] == 200  # with which the ticket of 1.3 comes
        second = connect(pki, secure.port, context, session=first.session)
        assert exchange(second)[0] == 200 and second.session_reused
        first.close()
        second.close()
    assert secure.metric("sluice_tls_resumptions_total") == 2


def test_tls_1_1_is_refused(secure):
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{secure.port}", "-tls1_1",
                           "-cipher", "ALL@SECLEVEL=0"], stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode != 0 and "protocol version" in done.stdout, done.stdout
    assert secure.metric('sluice_tls_handshake_failures_total{reason="protocol"}') == 1
    assert "no version of TLS from 1.2 on" in secure.server.log_text()


@pytest.mark.parametrize("port, offers, chosen", [
    ("port", ["http/1.1"], "http/1.1"),
    ("port", ["h2", "http/1.1"], "http/1.1"),
    ("port", [], None),
    ("port", ["h2"], "h2"),
    ("port", ["spdy/3"], "refused"),
    ("grpc_port", ["h2"], "h2"),
    ("grpc_port", ["grpc-exp", "h2"], "h2"),
    ("grpc_port", [], None),
    ("grpc_port", ["http/1.1"], "refused"),
])
def test_tls_alpn(secure, pki, port, offers, chosen):
    context = client_context(pki)
    if offers:
        context.set_alpn_protocols(offers)
    if chosen == "refused":
        with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
            connect(pki, getattr(secure, port), context)
        assert secure.metric('sluice_tls_handshake_failures_total{reason="alpn"}') == 1
        return
    with connect(pki, getattr(secure, port), context) as sock:
        assert sock.selected_alpn_protocol() == chosen
        if port == "port" and chosen != "h2":
            assert exchange(sock)[0] == 200
        else:  # the preface and empty SETTINGS are answered with SETTINGS
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            assert sock.recv(9)[3] == 4


def test_tls_plaintext_request_is_refused(secure):
    answer = http1.request(f"127.0.0.1:{secure.port}", "GET", "/v2")
    assert answer.status == 400 and b"https://" in answer.body and answer.says_close()
    channel = grpc.insecure_channel(f"127.0.0.1:{secure.grpc_port}")
    call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=10)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    channel.close()
    assert secure.metric('sluice_tls_handshake_failures_total{reason="plaintext"}') >= 2


def test_tls_failure_after_handshake_is_called_so(secure, pki):
    with connect(pki, secure.port) as sock:
        assert exchange(sock)[0] == 200
        socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + b"no record of this session....!!!")
        with pytest.raises(ssl.SSLError, match="(?i)bad.record.mac"):
            sock.recv(1)
    secure.server.wait_for(lambda: "TLS connection failed after its handshake" in secure.server.log_text(), "a line")
    assert "TLS handshake failed" not in secure.server.log_text()
    assert secure.metric("sluice_tls_connection_failures_total") == 1
    assert secure.metric('sluice_tls_handshake_failures_total{reason="protocol"}') == 0
    assert curl(secure.url + "/v2", ca=pki.ca)[1] == 200


# ---- who is slow, and who leaves -----------------------------------------------------------------

def test_tls_unfinished_handshake_times_out(start_secure, pki):
    """200 handshakes that stop at different places hold nobody up, and are ended."""
    secure = start_secure("--header-timeout", "2s")
    hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = client_context(pki).wrap_bio(*hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    first = hello[1].read()
    socks = []
    for i in range(200):
        socks.append(socket.create_connection(("127.0.0.1", secure.port)))
        socks[-1].sendall(first[:len(first) * i // 199])
    for _ in range(50):
        with connect(pki, secure.port) as sock:
            assert exchange(sock)[0] == 200
    for sock in socks:
        sock.settimeout(http1.PATIENCE)
        while sock.recv(65536):
            pass
        sock.close()
    assert secure.metric('sluice_tls_handshake_failures_total{reason="timeout"}') == 200
    secure.server.wait_at_rest()


def test_tls_drain_sends_close_notify(start_secure, pki):
    secure = start_secure()
    with connect(pki, secure.port) as idle, connect(pki, secure.port) as busy:
        assert exchange(idle)[0] == 200
        busy.sendall(b"POST /v2/models/id_fp32/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
                     % len(BODY))
        time.sleep(0.1)
        secure.server.signal()
        assert idle.recv(1) == b""  # an end that was said: else Python raises
        status, _ = exchange(busy, BODY)
        assert status == 200 and busy.recv(1) == b""
    assert secure.server.wait_exit() == 0
    secure.server.check_log()


# ---- files that change ---------------------------------------------------------------------------

class Load:
    """Asks all the time, over connections that stay and over new ones, and keeps what failed."""

    def __init__(self, secure, pki):
        self.port, self.pki = secure.port, pki
        self.ended = threading.Event()
        self.failed, self.n_asked, self.serials = [], 0, set()
        self.threads = [threading.Thread(target=self.run, args=(stays,), daemon=True)
                        for stays in (True, True, False, False)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def run(self, stays):
        sock = None
        while not self.ended.is_set():
            try:
                sock = sock or connect(self.pki, self.port)
                status, _ = exchange(sock)
                assert status == 200
                self.n_asked += 1
                if not stays:
                    sock.close()
                    sock = None
            except Exception as why:  # whatever it is, it must not happen
                self.failed.append(repr(why))
                return


def serial_served(pki, port):
    with connect(pki, port) as sock:
        from cryptography import x509
        return x509.load_der_x509_certificate(sock.getpeercert(binary_form=True)).serial_number


def wait_for_serial(pki, secure, serial):
    secure.server.wait_for(lambda: serial_served(pki, secure.port) == serial, "the new certificate")


def test_tls_certificate_reload_under_load(start_secure, pki, tmp_path):
    """As Kubernetes swaps a secret: a link to a folder, 5 times, with no request failing."""
    identities = [Identity(f"server {i}", pki.between) for i in range(6)]
    for i, identity in enumerate(identities):
        identity.write(tmp_path / f"v{i}")
    link = tmp_path / "data"
    link.symlink_to("v0")
    secure = start_secure(files=(str(link / "tls.crt"), str(link / "tls.key")))
    with connect(pki, secure.port) as old, Load(secure, pki) as load:
        assert exchange(old)[0] == 200
        for i in range(1, 6):
            (tmp_path / "next").symlink_to(f"v{i}")
            (tmp_path / "next").rename(link)
            wait_for_serial(pki, secure, identities[i].serial)
        time.sleep(0.2)
        assert exchange(old)[0] == 200  # it has its old certificate, and its connection
    assert load.failed == [] and load.n_asked > 100
    # Both listeners look at the same files.
    assert secure.metric('sluice_reloads_total{files="tls"}') == 10
    assert secure.metric('sluice_reload_failures_total{files="tls"}') == 0


def test_tls_broken_files_keep_old_certificate(start_secure, pki, tmp_path):
    cert, key = Identity("first", pki.between).write(tmp_path / "files")
    secure = start_secure(files=(cert, key))
    before = serial_served(pki, secure.port)
    other = Identity("second", pki.between)
    with open(cert, "wb") as file:
        file.write(other.chain_pem())  # and the key is still the old one
    secure.server.expect_error("does not belong to the certificate")
    secure.server.wait_for(lambda: secure.server.log_text().count("TLS reload failed") == 2,
                           "an error in the log for each protocol")
    time.sleep(0.3)
    assert serial_served(pki, secure.port) == before
    assert secure.server.log_text().count("TLS reload failed") == 2
    assert secure.metric('sluice_reload_failures_total{files="tls"}') == 2
    secure.server.expect_error("the file is empty")  # one that is read while it is written
    other.write(tmp_path / "files")
    wait_for_serial(pki, secure, other.serial)


def test_tls_client_ca_reload_ends_resumption(start_secure, pki, tmp_path):
    """Who was signed by the old one is let in no more, not even with a ticket."""
    ca = tmp_path / "ca.pem"
    pki.client_root.write_cert(ca)
    secure = start_secure("--http-tls-client-ca", str(ca))
    context = client_context(pki, files=pki.client_files)
    with connect(pki, secure.port, context) as first:
        assert exchange(first)[0] == 200
        pki.stranger.write_cert(ca)
        secure.server.wait_for(lambda: secure.metric('sluice_reloads_total{files="tls"}') == 1, "a reload")
        assert exchange(first)[0] == 200
        with pytest.raises(OSError):
            with connect(pki, secure.port, context, session=first.session) as again:
                exchange(again)
    assert exchange(connect(pki, secure.port, client_context(pki, files=pki.stranger_files)))[0] == 200


# ---- what cannot be started ----------------------------------------------------------------------

def test_tls_unusable_files_fail_start(pki, repositories, tmp_path):
    encrypted = pki.server.write(tmp_path / "encrypted", password=b"secret")[1]
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    cert, key = pki.server_files
    http = ["--http-tls-cert", cert, "--http-tls-key"]
    rows = [
        (["--http-tls-cert", tmp_path / "none", "--http-tls-key", key], 1, "No such file"),
        (["--http-tls-cert", key, "--http-tls-key", cert], 1, "swapped"),
        ([*http, pki.client_files[1]], 1, "does not belong"),
        ([*http, encrypted], 1, "encrypted"),
        ([*http, key, "--http-tls-client-ca", empty], 1, "empty"),
        ([*http, tmp_path], 1, "directory"),
        (["--grpc-tls-cert", tmp_path / "none", "--grpc-tls-key", key], 1, "--grpc-tls-cert"),
        (["--http-tls-cert", cert], 2, "--http-tls-cert needs --http-tls-key"),
        (["--http-tls-key", key], 2, "needs --http-tls-cert"),
        (["--grpc-tls-client-ca", key], 2, "needs --grpc-tls-cert"),
        (["--http", TLS], 2, "TLS needs --http-tls-cert"),
        (["--grpc", "grpcs://127.0.0.1:0"], 2, "TLS needs --grpc-tls-cert"),
        (["--grpc-use-ssl", "true"], 2, "--grpc-tls-cert FILE"),
    ]
    for flags, code, says in rows:
        for check in (), ("--check",):
            done = run("serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--model-repository",
                       repositories("default"), *flags, *check)
            assert done.returncode == code and says in done.stderr, (flags, done.returncode, done.stderr)


def test_tls_reference_flag_names(start_server, repositories, pki):
    """--grpc-server-cert, -key and --grpc-root-cert are the same settings."""
    cert, key = pki.server_files
    server = start_server("--model-repository", repositories("default"), "--grpc-server-cert", cert,
                          "--grpc-server-key", key, "--grpc-root-cert", pki.client_ca, grpc=("127.0.0.1:0",))
    port = int(server.grpc_addresses[0].rsplit(":", 1)[1])
    with tritonclient.grpc.InferenceServerClient(
            f"127.0.0.1:{port}", ssl=True, root_certificates=pki.ca,
            certificate_chain=pki.client_files[0], private_key=pki.client_files[1]) as client:
        assert client.is_server_ready()


def test_tls_concurrent_large_answers(secure, pki):
    """Large answers to slow and fast readers at the same time."""
    large = numpy.random.default_rng(1).bytes(3_000_000)
    head = (b"POST /v2/models/id_uint8/infer HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: 0\r\n"
            b"Content-Length: %d\r\n\r\n" % len(large))

    def ask(slow):
        with connect(pki, secure.port) as sock:
            sock.sendall(head + large)
            if slow:
                time.sleep(0.5)
            status, body = exchange(sock, b"")
            return status == 200 and body.endswith(large)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, [i % 3 == 0 for i in range(48)]))
