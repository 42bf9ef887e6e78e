"""Backends in Python: a model.py in the directory of the backend runs all models that name the backend, whose directories have
only data."""
import json
import os

import pytest

from lib import http1, python_models, server as servers
from lib.python_models import DOES, FLAGS, Client

TEMPLATES = """
import json
import os

import helper  # beside this file
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "DO", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(4)
        return config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        with open(os.path.join(pb_utils.get_model_dir(), "model.json"), encoding="utf-8") as file:
            self.template = json.load(file)["template"]
        self.parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.args = args

    def execute(self, requests):
        responses = []
        for request in requests:
            word = pb_utils.get_input_tensor_by_name(request, "DO").as_numpy().ravel()[0].decode()
            told = {"text": self.template.format(word), "mark": helper.MARK, "parameters": self.parameters,
                    "repository": self.args["model_repository"], "directory": pb_utils.get_model_dir(), "file": __file__}
            text = np.array([[json.dumps(told)]], dtype=object)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]))
        return responses
"""


def write_backend(folder, name, source, **files):
    os.makedirs(folder / name)
    for stem, text in {"model": source, **files}.items():
        (folder / name / f"{stem}.py").write_text(text)


def write_model(folder, name, template, config):
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.json").write_text(json.dumps({"template": template}))
    (folder / name / "config.pbtxt").write_text(config)


@pytest.fixture
def backends(tmp_path):
    """A directory of backends: those of the build, by links, and whatever the test adds."""
    folder = tmp_path / "backends"
    folder.mkdir()
    for name in os.listdir(os.path.join(servers.build(), "backends")):
        (folder / name).symlink_to(os.path.join(servers.build(), "backends", name))
    return folder


def start(start_server, tmp_path, backends, *flags, **options):
    return start_server("--model-repository", tmp_path / "models", "--backend-dir", backends, *FLAGS, *flags, **options)


def test_models_of_a_backend_in_python_are_served(start_server, tmp_path, backends):
    write_backend(backends, "templates", TEMPLATES, helper="MARK = 'of the backend'\n")
    models = tmp_path / "models"
    write_model(models, "hello", "hello {}", 'backend: "templates"\nparameters { key: "own" value { string_value: "1" } }\n')
    write_model(models, "bye", "bye {}", 'backend: "templates"\n')
    (models / "bye" / "1" / "model.py").write_text("raise RuntimeError('is not run')\n")
    server = start(start_server, tmp_path, backends, "--backend-config", "templates,size=7", "--backend-config",
                   "templates,threads=1", "--backend-config", "python,threads=2")
    client = Client(server)
    told = json.loads(client.ask("hello", "you"))
    assert told["text"] == "hello you" and told["mark"] == "of the backend"
    assert told["repository"] == str(models / "hello") and told["directory"] == str(models / "hello" / "1")
    assert told["file"] == str(backends / "templates" / "model.py")
    assert (told["parameters"]["own"], told["parameters"]["size"], told["parameters"]["threads"]) == ("1", "7", "1")
    assert json.loads(client.ask("bye", "you"))["text"] == "bye you"
    config = json.loads(http1.request(server.address, "GET", "/v2/models/hello/config").body)
    assert config["backend"] == "templates" and config["max_batch_size"] == 4
    assert client.client.get_model_metadata("hello")["platform"] == "python"


def test_library_counts_more_than_a_program_of_its_name(start_server, tmp_path, backends):
    write_backend(backends, "identity", "raise RuntimeError('is not run')\n")
    models = tmp_path / "models"
    write_model(models, "same", "", 'backend: "identity"\nmax_batch_size: 4\n'
                'input { name: "DO" data_type: TYPE_STRING dims: [ 1 ] }\noutput { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }\n')
    assert Client(start(start_server, tmp_path, backends)).ask("same", "word") == "word"


def test_backends_in_python_that_do_not_work_say_why(start_server, tmp_path, backends):
    write_backend(backends, "broken", "import no_such_package\n")
    write_backend(backends, "classless", "x = 1\n")
    (backends / "empty").mkdir()
    models = tmp_path / "models"
    config = ('input { name: "DO" data_type: TYPE_STRING dims: [ 1 ] }\n'
              'output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }\n')
    for name in ("broken", "classless", "empty"):
        write_model(models, name, "", f'backend: "{name}"\n' + config)
    python_models.write(models, "does", "does", DOES)
    server = start(start_server, tmp_path, backends, wait="loaded")
    server.expect_error("model failed to load")
    reasons = {line["model"]: line["reason"] for line in server.log_lines() if "reason" in line and "model" in line}
    assert "-m pip install no_such_package" in reasons["broken"]
    assert f"{backends}/classless/model.py: expected a class TritonPythonModel" in reasons["classless"]
    assert "no backend empty is installed" in reasons["empty"] and "broken, classless" in reasons["empty"]
    assert Client(server).ask("does", "fine") == "fine"


def test_backend_in_python_needs_the_backend_python(start_server, tmp_path):
    write_backend(tmp_path / "few", "templates", TEMPLATES)
    (tmp_path / "few" / "libsluice_identity.so").symlink_to(
        os.path.join(servers.build(), "backends", "libsluice_identity.so"))
    write_model(tmp_path / "models", "hello", "", 'backend: "templates"\n')
    server = start_server("--model-repository", tmp_path / "models", "--backend-dir", tmp_path / "few", wait="loaded")
    server.expect_error("model failed to load")
    assert "backend templates is a program in Python, and the backend python is not installed in" in server.log_text()
