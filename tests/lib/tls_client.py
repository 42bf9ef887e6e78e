"""TLS clients of a test server: the certificates of both sides, and connections that check them."""
import contextlib
import socket
import ssl

from lib import http1
from lib.certificates import Identity


class Pki:
    """A root, a server signed by an intermediate authority, a client signed by another root, and a
    self-signed certificate that neither side trusts."""

    def __init__(self, folder):
        self.folder = folder
        self.root = Identity("root", authority=True)
        self.between = Identity("between", self.root, authority=True)
        self.server = Identity("server", self.between)
        self.client_root = Identity("client root", authority=True)
        self.client = Identity("client", self.client_root)
        self.stranger = Identity("stranger")
        self.ca = self.root.write_cert(folder / "ca.pem")
        self.client_ca = self.client_root.write_cert(folder / "client-ca.pem")
        self.server_files = self.server.write(folder / "server")
        self.client_files = self.client.write(folder / "client")
        self.stranger_files = self.stranger.write(folder / "stranger")


def client_context(pki, **identity):
    context = ssl.create_default_context(cafile=pki.ca)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # newer Pythons' default
    if identity:
        context.load_cert_chain(*identity["files"])
    return context


def connect(pki, port, context=None, **options):
    """A connection of TLS to the server."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=http1.PATIENCE)
    return (context or client_context(pki)).wrap_socket(plain, server_hostname="localhost", **options)


def client_hello(pki):
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context(pki).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()
