"""Starts the Sluice model server from Python, and ends it.

    import sluice_server
    with sluice_server.serve("model.onnx") as server:
        ...  # ask server.http_url or server.grpc_url with tritonclient, requests or any other client

The same program is on the path as ``sluice``.
"""
import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import List, Optional, Sequence, Type, Union

__all__ = ["Server", "ServerError", "serve"]
__version__ = importlib.metadata.version("sluice-server")

_LOADED = "loading has ended"


class ServerError(RuntimeError):
    """The server did not become ready, or ended by itself. The text is what it wrote."""


class Server:
    """A running ``sluice serve``. Use it in a ``with`` statement, or call :meth:`stop`."""

    http_url: str
    """Where HTTP is served, ``http://127.0.0.1:PORT``."""
    grpc_url: str
    """Where gRPC is served, ``127.0.0.1:PORT``, as gRPC clients take it."""
    process: "subprocess.Popen[bytes]"
    """The server's process."""

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._folder = tempfile.mkdtemp(prefix="sluice-")
        self._ready = os.path.join(self._folder, "ready")
        self._log = os.path.join(self._folder, "log")
        try:
            with open(self._log, "wb") as log:
                self.process = subprocess.Popen([*command, "--log-format", "json", "--ready-file", self._ready],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._wait(time.monotonic() + timeout, timeout)
        except BaseException:
            self.stop(0)
            raise

    def log(self) -> str:
        """The lines that the server has written, as JSON where it began to serve."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, timeout: float = 60) -> None:
        """Ends the server: it answers the requests in flight first, for up to ``timeout`` seconds."""
        if self.process.poll() is None:
            if timeout > 0:
                self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()

    def _wait(self, end: float, timeout: float) -> None:
        """Waits for the ready file. It is written when all models are loaded; loading that ended without
        it failed."""
        while True:
            ended, loaded = self.process.poll() is not None, _LOADED in self.log()
            if os.path.exists(self._ready):
                break
            if ended or loaded:
                raise ServerError(self._why() or f"the server ended with code {self.process.returncode}")
            if time.monotonic() > end:
                raise ServerError(f"not ready within {timeout:g} s:\n{self.log()}")
            time.sleep(0.01)
        with open(self._ready, encoding="utf-8") as file:
            urls = file.read().split()
        self.http_url = next(url for url in urls if url.startswith("http"))
        self.grpc_url = next(url for url in urls if url.startswith("grpc")).split("://")[1]

    def _why(self) -> str:
        """The errors in the log, else all of it."""
        reasons: List[str] = []
        for line in self.log().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                reasons.append(line)
                continue
            if entry.get("level") in ("ERROR", "error"):
                reasons.append(": ".join(str(entry[key]) for key in ("model", "msg", "event", "reason", "text")
                                         if entry.get(key)))
        return "\n".join(reasons) or self.log()


def _program() -> str:
    """The program of this package, wherever pip put it."""
    for file in importlib.metadata.files("sluice-server") or ():
        if file.name == "sluice" and file.parent.name == "bin":
            return str(file.locate())
    found = shutil.which("sluice")
    if not found:
        raise ServerError("the program sluice is not installed with this package, and not on the path")
    return found


def serve(*models: Union[str, "os.PathLike[str]"], args: Sequence[str] = (), timeout: float = 120) -> Server:
    """Serves models on free ports of 127.0.0.1, and returns when they are ready.

    ``models`` are files (``model.onnx``), ``NAME=PATH``, or directories of models; ``args`` are further flags of
    ``sluice serve``. Raises :class:`ServerError` with the server's words when it can't serve them, or is not ready
    within ``timeout`` seconds.
    """
    return Server([_program(), "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "none",
                   *args, *(os.fspath(model) for model in models)], timeout)
