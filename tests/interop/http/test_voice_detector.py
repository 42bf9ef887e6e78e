"""The streaming voice detectors of PyPI's silero-vad: with state that the client keeps and state that the server
keeps they say the same."""
import numpy
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from lib import metrics, stateful
from lib.stateful import config, initial, state

CHUNK, CONTEXT = 512, 64
STATE = [state("state", "stateN", "FP32", [2, 1, 128], initial("FP32", [2, 1, 128]))]
AT_ONCE = "oldest { max_candidate_sequences: 16 }"
FILES = {
    # fixed shapes; any length and a sampling rate; the file that the package itself loads
    "fixed": ("silero_vad_openvino_16k.onnx", [1, CHUNK + CONTEXT], False),
    "ifless": ("silero_vad_op18_ifless.onnx", [-1, -1], True),
    "default": ("silero_vad.onnx", [-1, -1], True),
}


def configured(dims, has_rate, backend="onnxruntime", strategy=AT_ONCE):
    inputs = [f'input {{ name: "input" data_type: TYPE_FP32 dims: [ {", ".join(map(str, dims))} ] }}']
    if has_rate:
        inputs.append('input { name: "sr" data_type: TYPE_INT64 dims: [ 1 ] }')
    output = 'output { name: "output" data_type: TYPE_FP32 dims: [ -1, 1 ] }'
    if dims[0] == 1:
        output = output.replace("-1", "1")
    return config(STATE, 0, strategy, more="\n".join([f'backend: "{backend}"', *inputs, output]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Each file with state and without, the first one also by the other backend."""
    folder = tmp_path_factory.mktemp("models")
    for name, (file, dims, has_rate) in FILES.items():
        stateful.write_voice_detector(folder, f"{name}_alone", file, "max_batch_size: 0\n")
        stateful.write_voice_detector(folder, f"{name}_kept", file, configured(dims, has_rate))
    file, dims, has_rate = FILES["fixed"]
    stateful.write_voice_detector(folder, "openvino_alone", file, 'backend: "openvino"\nmax_batch_size: 0\n')
    stateful.write_voice_detector(folder, "openvino_kept", file, configured(dims, has_rate, "openvino"))
    stateful.write_voice_detector(folder, "direct_alone", file, "max_batch_size: 0\n")
    stateful.write_voice_detector(folder, "direct_kept", file, configured(dims, has_rate, strategy="direct { }"))
    return folder


@pytest.fixture
def server(start_server, folder):
    server = start_server("--model-repository", folder, grpc=("127.0.0.1:0",))
    yield server
    metrics.wait_at_rest(server.address, server.arenas)


def chunks(seed, n):
    """Sounds that come and go, in pieces that begin with the end of the one before."""
    rng = numpy.random.default_rng(seed)
    time = numpy.arange(n * CHUNK) / 16000
    tone = sum(numpy.sin(2 * numpy.pi * 110 * (seed + 1) * k * time) / k for k in range(1, 9))
    sound = tone * (numpy.sin(2 * numpy.pi * 3 * time) > 0) * 0.2 + rng.normal(0, 0.01, time.size)
    sound = numpy.concatenate([numpy.zeros(CONTEXT), sound]).astype(numpy.float32)
    return [sound[None, i * CHUNK:(i + 1) * CHUNK + CONTEXT] for i in range(n)]


class Detector:
    def __init__(self, protocol, server, name):
        self.triton = {"http": triton_http, "grpc": triton_grpc}[protocol]
        address = server.address.removeprefix("http://") if protocol == "http" else server.grpc_address
        self.client, self.name = self.triton.InferenceServerClient(address), name
        self.has_rate = FILES.get(name, FILES["fixed"])[2]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()

    def ask(self, kind, arrays, **options):
        tensors = []
        if self.has_rate:
            arrays["sr"] = numpy.array(16000) if kind == "alone" else numpy.array([16000])
        for name, array in arrays.items():
            tensors.append(self.triton.InferInput(name, list(array.shape),
                                                  "FP32" if array.dtype == numpy.float32 else "INT64"))
            tensors[-1].set_data_from_numpy(array)
        return self.client.infer(f"{self.name}_{kind}", tensors, **options)

    def alone(self, sound):
        """The client keeps the state."""
        kept, said = numpy.zeros((2, 1, 128), numpy.float32), []
        for chunk in sound:
            result = self.ask("alone", {"input": chunk, "state": kept})
            said.append(result.as_numpy("output").item())
            kept = result.as_numpy("stateN")
        return said

    def kept(self, number, chunk, i, n):
        result = self.ask("kept", {"input": chunk}, sequence_id=number, sequence_start=i == 0, sequence_end=i == n - 1)
        assert result.as_numpy("stateN") is None
        return result.as_numpy("output").item()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("name", [*FILES, "openvino"])
def test_voice_detector_state_of_server_equals_state_of_client(server, protocol, name):
    n, speakers = 40, range(4)
    with Detector(protocol, server, name) as detector:
        sounds = [chunks(seed, n) for seed in speakers]
        expected = [detector.alone(sound) for sound in sounds]
        assert max(map(max, expected)) > 0.1 and len({tuple(said) for said in expected}) == 4
        said = [[] for _ in speakers]
        for i in range(n):  # the speakers take turns
            for speaker in speakers:
                said[speaker].append(detector.kept(speaker + 1, sounds[speaker][i], i, n))
        assert said == expected


def test_voice_detector_direct_has_one_sequence_at_a_time(server):
    with Detector("http", server, "direct") as detector:
        for seed in range(2):
            sound = chunks(seed, 10)
            assert [detector.kept(seed + 1, chunk, i, 10) for i, chunk in enumerate(sound)] == detector.alone(sound)
