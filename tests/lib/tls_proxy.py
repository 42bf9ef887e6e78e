"""TLS in front of a server that has none: it decrypts and passes on, both ways, for one client after the
other."""
import select
import socket
import ssl
import subprocess
import threading


def make_certificate(folder, name):
    """A certificate for the host `name` that vouches for itself. Returns: the files of it and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", certificate],
                   check=True, stderr=subprocess.DEVNULL)
    return certificate, key


class TlsProxy:
    """Passes on to `address` (HOST:PORT) until `close`. `cut_after`: ends each connection, without a
    goodbye, once that many bytes of answers have passed."""

    def __init__(self, address, certificate, key, cut_after=None):
        self.target = address.rsplit(":", 1)
        self.cut_after = cut_after
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.n_connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def run(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            self.n_connections += 1
            try:
                with (self.context.wrap_socket(plain, server_side=True) as client,
                      socket.create_connection(self.target) as server):
                    self.pass_on(client, server)
            except OSError:  # ssl.SSLError too: it is the client that says what it makes of it
                plain.close()

    def pass_on(self, client, server):
        n_answered = 0
        while True:
            ready = [client] if client.pending() else select.select([client, server], [], [])[0]
            if client in ready:
                data = client.recv(1 << 16)
                if not data:
                    return
                server.sendall(data)
            if server in ready:
                data = server.recv(1 << 16)
                n_answered += len(data)
                if not data:
                    client.unwrap()
                    return
                if self.cut_after is not None and n_answered > self.cut_after:
                    return
                client.sendall(data)
