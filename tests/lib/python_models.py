"""Repositories of models in Python: tests/models/python/NAME.py as 1/model.py, with a configuration."""
import os
import shutil
import sys
import textwrap
import time

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from lib import http1, server

SOURCES = os.path.join(server.ROOT, "tests", "models", "python")
FLAGS = ("--python", os.environ.get("SLUICE_TEST_PYTHON", sys.executable))  # which has numpy; the former: tools/test-pythons


def tensor(kind, name, datatype, dims):
    shown = "STRING" if datatype == "BYTES" else datatype
    return f'{kind} {{ name: "{name}" data_type: TYPE_{shown} dims: [ {", ".join(map(str, dims))} ] }}\n'


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


DOES = (tensor("input", "DO", "BYTES", [1]) + 'input { name: "DATA" data_type: TYPE_FP32 dims: [ -1 ] optional: true }\n'
        + tensor("output", "OUT", "BYTES", [1]) + "max_batch_size: 8\n")


def write(models, name, source, config, **files):
    """Writes a model. `source` is the name of a file of SOURCES, or the text of a program; `files` are others of its
    version's directory, without .py."""
    version = os.path.join(models, name, "1")
    os.makedirs(version)
    if "\n" in source:
        files = {"model": source, **files}
    else:
        shutil.copy(os.path.join(SOURCES, source + ".py"), os.path.join(version, "model.py"))
    for stem, text in files.items():
        with open(os.path.join(version, stem + ".py"), "w", encoding="utf-8") as file:
            file.write(text)
    if config is not None:
        with open(os.path.join(models, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write('backend: "python"\n' + config)


def workers(pid, model=None):
    """The processes of workers that a server has, or those of one model."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read()
            except (OSError, ValueError, IndexError):
                continue
            arguments = command.rstrip(b"\0").split(b"\0")
            if (parent == pid and any(each.endswith(b"worker/__main__.py") for each in arguments)
                    and model in (None, arguments[-1].decode())):
                found.append(int(entry))
    return found


def is_gone(pid):
    """Whether the process has ended, also where no other one has waited for it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_gone(pid):
    end = time.monotonic() + http1.PATIENCE
    while not is_gone(pid):
        assert time.monotonic() < end, f"process {pid} still runs"
        time.sleep(0.01)


class Client:
    """tritonclient, over HTTP or gRPC."""

    def __init__(self, server, protocol="http"):
        self.triton = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
        address = server.address if protocol == "http" else server.grpc_address
        self.client = self.triton.InferenceServerClient(address.removeprefix("http://"), **(
            {"network_timeout": http1.PATIENCE, "connection_timeout": http1.PATIENCE} if protocol == "http" else {}))

    def infer(self, model, arrays, **options):
        inputs = []
        for name, array in arrays.items():
            inputs.append(self.triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        return self.client.infer(model, inputs, **options)

    def ask(self, model, word, data=None, **options):
        """What a model `does` answers."""
        arrays = {"DO": numpy.array([[word.encode()]], dtype=object)}
        if data is not None:
            arrays["DATA"] = data
        return self.infer(model, arrays, **options).as_numpy("OUT")[0, 0].decode()

    def error_of(self, model, word, **options):
        with pytest.raises(InferenceServerException) as caught:
            self.ask(model, word, **options)
        return f"{caught.value.status()} {caught.value.message()}"


def wait_restarted(server, client, model="does", word="again"):
    """Waits until the model answers again."""
    def answers():
        try:
            client.ask(model, word)
            return True
        except InferenceServerException:
            return False
    server.wait_for(answers, "an answer after the restart")


def hostile(folder, code):
    """A program in place of an interpreter, which speaks to the server as `code` says. Returns: its path."""
    path = os.path.join(folder, "hostile")
    with open(path, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(f"""\
            #!{sys.executable}
            import os, socket, struct, time
            s = socket.socket(fileno=3)
            recv = s.recv
            def message(kind, *parts):
                body = b"".join(parts)
                s.sendall(struct.pack("<II", 8 + len(body), kind) + body)
            def ready():
                recv(1 << 16)
                message(64, b"\\0")
                recv(1 << 16)
            {code}
            time.sleep(1000)
            """))
    os.chmod(path, 0o755)
    return path
