"""libsluice's own TLS against servers that it must not trust, that do not trust it, and that do not
speak TLS: each gives the status TLS and the reason, and the same server then answers a good client."""
import os
import socket
import subprocess
import threading

import pytest

from lib import http1, server
from lib.certificates import Identity
from lib.tls_client import Pki

MODELS = os.path.join(server.ROOT, "examples", "client", "models")


@pytest.fixture(name="pki", scope="module")
def make_pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(name="start")
def starter(start_server):
    """Starts a server with a plain listener and one with TLS. Returns: (port, port with TLS)."""
    def start(files, client_ca=None):
        mutual = ["--http-tls-client-ca", client_ca] if client_ca else []
        live = start_server("--model-repository", MODELS, "--http-tls-cert", files[0], "--http-tls-key", files[1],
                            *mutual, listen=("http://127.0.0.1:0", "https://127.0.0.1:0"))
        return [int(address.rsplit(":", 1)[1]) for address in live.addresses]
    return start


def https(url, *args):
    """Returns: (exit code, standard output, standard error)."""
    program = os.path.join(server.build(), "examples", "client", "https")
    done = subprocess.run([program, url, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=2 * http1.PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def check_good(url, *args):
    code, out, err = https(url, *args)
    assert (code, err) == (0, "") and out.startswith("sluice "), err


def check_bad(status, reason, url, *args):
    code, out, err = https(url, *args)
    assert (code, out) == (1, "")
    assert err.startswith(f"https: SLUICE_CLIENT_{status}: ") and reason in err, err


def test_tls_server_is_verified(pki, start):
    plain, port = start(pki.server_files)
    check_good(f"https://localhost:{port}", pki.ca)
    check_good(f"https://127.0.0.1:{port}", pki.ca)
    check_good(f"https://127.0.0.1:{port}", pki.ca, "localhost")
    url = f"https://localhost:{port}"
    check_bad("TLS", "unable to get local issuer certificate", url)
    check_bad("TLS", "(sluice_tls_options.ca_file sets the trusted CAs)", url, pki.client_ca)
    check_bad("TLS", "hostname mismatch", url, pki.ca, "elsewhere")
    check_bad("TLS", "IP address mismatch", url, pki.ca, "127.0.0.2")
    check_bad("TLS", "the server does not use TLS", f"https://localhost:{plain}", pki.ca)
    check_bad("CONNECT", "refused", "https://localhost:1", pki.ca)
    check_good(url, pki.ca)


@pytest.mark.parametrize("days, reason", [((-3, -2), "certificate has expired"),
                                          ((2, 3), "certificate is not yet valid")])
def test_tls_certificate_out_of_its_time_is_refused(pki, start, tmp_path, days, reason):
    _, port = start(Identity("server", pki.root, days=days).write(tmp_path / "old"))
    check_bad("TLS", reason, f"https://localhost:{port}", pki.ca)


def test_tls_client_certificate(pki, start, tmp_path):
    _, port = start(pki.server_files, pki.client_ca)
    url = f"https://localhost:{port}"
    check_good(url, pki.ca, "-", *pki.client_files)
    check_bad("TLS", "requires a client certificate (sluice_tls_options.cert_file, key_file)", url, pki.ca)
    check_bad("TLS", "refused the client certificate", url, pki.ca, "-", *pki.stranger_files)
    check_bad("INVALID", "key_file", url, pki.ca, "-", pki.client_files[0], pki.stranger_files[1])
    secret = Identity("secret", pki.client_root).write(tmp_path / "secret", b"password")
    check_bad("INVALID", "the key is encrypted", url, pki.ca, "-", *secret)
    check_bad("INVALID", "No such file", url, str(tmp_path / "absent"))
    check_good(url, pki.ca, "-", *pki.client_files)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28",
                                    b"\x16\x03\x03\xff\xff" + bytes(100)])
def test_tls_broken_handshake_fails(pki, start, answer):
    """A server that closes the connection, that is another one, and that sends an alert or nonsense."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)
    thread = threading.Thread(target=serve)
    thread.start()
    check_bad("TLS", "", f"https://localhost:{listener.getsockname()[1]}", pki.ca)
    thread.join()
    listener.close()
    _, port = start(pki.server_files)
    check_good(f"https://localhost:{port}", pki.ca)
