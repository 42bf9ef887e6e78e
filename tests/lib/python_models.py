"""Repositories of models in Python: tests/models/python/NAME.py as 1/model.py, with a configuration."""
import os
import shutil
import sys
import time

from lib import http1, server

SOURCES = os.path.join(server.ROOT, "tests", "models", "python")
FLAGS = ("--python", sys.executable)  # which has numpy


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


def workers(pid):
    """The processes of workers that a server has."""
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
            if parent == pid and b"worker/__main__.py" in command:
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
