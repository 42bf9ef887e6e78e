"""What the server does for models of each backend, with models in Python: warm-up, the response cache, statistics, queue
timeouts, states of sequences, and tensors in shared memory of clients."""
import threading

import numpy
import pytest
from tritonclient.utils import InferenceServerException, shared_memory

from lib import python_models
from lib.python_models import DOES, FLAGS, Client, tensor

IN_OUT = tensor("input", "IN", "INT32", [1]) + tensor("output", "OUT", "INT32", [1]) + "max_batch_size: 4\n"
# Answers how many requests it has executed.
COUNTS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    n = 0

    def execute(self, requests):
        responses = []
        for _ in requests:
            self.n += 1
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[self.n]], np.int32))]))
        return responses
"""
# Answers the sum of a sequence, which the server keeps.
ADDS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            added = sum(pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "BEFORE"))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor(name, added) for name in ("OUT", "AFTER")]))
        return responses
"""
ECHO = tensor("input", "INPUT0", "FP32", [-1]) + tensor("output", "OUTPUT0", "FP32", [-1])


@pytest.fixture
def running(start_server, tmp_path):
    """run(name=(source, config), …): a server of these models."""
    def run(*flags, **models):
        for name, (source, config) in models.items():
            python_models.write(tmp_path / "models", name, source, config)
        return start_server("--model-repository", tmp_path / "models", *FLAGS, *flags, grpc=("127.0.0.1:0",))
    return run


def ask(client, model, value, **options):
    return int(client.infer(model, {"IN": numpy.array([[value]], numpy.int32)}, **options).as_numpy("OUT")[0, 0])


def test_models_are_warmed_up_before_they_serve(running):
    server = running(counts=(COUNTS, IN_OUT + 'model_warmup { name: "w" batch_size: 1 count: 3 inputs { key: "IN" value { '
                             "data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } }\n"))
    assert ask(Client(server), "counts", 0) == 4


def test_answers_are_cached_and_counted(running):
    server = running("--cache-size", "1MiB", cached=(COUNTS, IN_OUT + "response_cache { enable: true }\n"), not_cached=(COUNTS, IN_OUT))
    client = Client(server)
    assert [ask(client, "cached", value) for value in (5, 5, 6, 5)] == [1, 1, 2, 1]
    assert [ask(client, "not_cached", value) for value in (5, 5)] == [1, 2]
    told = client.client.get_inference_statistics("cached")["model_stats"][0]
    assert told["inference_stats"]["success"]["count"] == 4 and told["execution_count"] == 2
    assert told["inference_stats"]["cache_hit"]["count"] == 2 and told["inference_stats"]["cache_miss"]["count"] == 2
    assert told["inference_stats"]["compute_infer"]["ns"] > 0


def test_requests_that_wait_longer_than_their_timeout_are_refused(running):
    server = running(does=("does", DOES + "dynamic_batching { default_queue_policy { allow_timeout_override: true } }\n"))
    client = Client(server)
    first = threading.Thread(target=lambda: Client(server).ask("does", "sleep:3"))
    first.start()
    with pytest.raises(InferenceServerException) as caught:
        while first.is_alive():  # until it is behind the first one
            client.ask("does", "fine", timeout=1000)
    assert "timeout" in caught.value.message().lower(), caught.value
    first.join()
    assert client.ask("does", "fine") == "fine"


def test_states_of_sequences_are_kept_by_the_server(running):
    state = 'state [ { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_INT32 dims: [ 1 ] initial_state: { name: "zero" ' \
            "data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } ]"
    server = running(adds=(ADDS, IN_OUT + f"sequence_batching {{ {state} }}\n"))
    client = Client(server)
    for value, ends in ((1, False), (2, False), (3, True)):
        for sequence in (7, 8):
            assert ask(client, "adds", value * sequence, sequence_id=sequence, sequence_start=value == 1,
                       sequence_end=ends) == sequence * sum(range(value + 1))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tensors_are_in_shared_memory_of_the_client(running, protocol):
    server = running("--allow-client-shm", "true", echo=("echo", ECHO))
    client = Client(server, protocol)
    array = numpy.arange(100_000, dtype=numpy.float32)
    region = shared_memory.create_shared_memory_region("region", f"/sluice_test_{server.pid}", 2 * array.nbytes)
    try:
        shared_memory.set_shared_memory_region(region, [array])
        client.client.register_system_shared_memory("region", f"/sluice_test_{server.pid}", 2 * array.nbytes)
        given = client.triton.InferInput("INPUT0", list(array.shape), "FP32")
        given.set_shared_memory("region", array.nbytes)
        wanted = client.triton.InferRequestedOutput("OUTPUT0")
        wanted.set_shared_memory("region", array.nbytes, array.nbytes)
        client.client.infer("echo", [given], outputs=[wanted])
        got = shared_memory.get_contents_as_numpy(region, numpy.float32, [200_000])[100_000:]
        assert (got == array).all()
        client.client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(region)
