"""Models that keep a sum for each sequence: a backend of a few lines, which is compiled for the tests."""
import os
import shutil
import subprocess

from lib import server

SOURCE = os.path.join(server.ROOT, "tests", "interop", "adder_backend.c")

FLAGS = {"START": "CONTROL_SEQUENCE_START", "END": "CONTROL_SEQUENCE_END",
         "READY": "CONTROL_SEQUENCE_READY"}


def control(name, kind, value):
    return f'control_input {{ name: "{name}" control {{ kind: {kind} {value} }} }}'


def adder(strategy="direct { }", max_batch_size=4, corrid=None, pair="int32_false_true: [ 0, 1 ]",
          idle_us=60000000, more=""):
    """config.pbtxt of a model. `corrid` is the data_type of its identifiers; None: it is not told."""
    controls = [control(name, kind, pair) for name, kind in FLAGS.items()]
    if corrid:
        controls.append(control("CORRID", "CONTROL_SEQUENCE_CORRID", f"data_type: {corrid}"))
    outputs = [f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] }}'
               for name in ("SUM", "ROW", "ROWS", "INSTANCE")]
    return "\n".join(['backend: "adder"', f"max_batch_size: {max_batch_size}",
                      'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }', *outputs,
                      f"sequence_batching {{ max_sequence_idle_microseconds: {idle_us}",
                      strategy, *controls, "}", more, ""])


def build(folder):
    """A folder of backends with the adder in it, and identity."""
    backends = os.path.join(folder, "backends")
    os.makedirs(backends)
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-fPIC", "-shared", "-fvisibility=hidden",
                    "-Wall", "-Wextra", "-Werror", "-I", os.path.join(server.ROOT, "include"),
                    SOURCE, "-o", os.path.join(backends, "libsluice_adder.so")], check=True)
    shutil.copy(os.path.join(server.build(), "backends", "libsluice_identity.so"), backends)
    return backends


def write(folder, models):
    """A repository of models, name → config.pbtxt."""
    for name, config in models.items():
        os.makedirs(os.path.join(folder, name, "1"))
        with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(config)
    return str(folder)
