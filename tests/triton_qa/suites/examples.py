"""The example programs of the client repository, as they are."""
import shutil

import onnx

from plan import CLIENT_EXAMPLES, NotRun, Programs
from suites.common import CUSTOM, GPU, SERVE, example_models


def models_of_examples(place):
    models = example_models(place)
    models.write('custom_identity_int32', '''backend: "identity" max_batch_size: 1024
input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]''')
    densenet(models)
    return models


def densenet(models):
    """A model of the shapes of densenet_onnx. It says that every picture is of the first class."""
    source = models.place.examples / 'densenet_onnx'
    folder = models.folder / 'densenet_onnx'
    shutil.copytree(source, folder)
    (folder / '1').mkdir()
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node('ReduceMean', ['data_0', 'axes'], ['mean'], keepdims=0),
         onnx.helper.make_node('Mul', ['mean', 'zero'], ['nothing']),
         onnx.helper.make_node('Add', ['nothing', 'first'], ['sum']),
         onnx.helper.make_node('Reshape', ['sum', 'shape'], ['fc6_1'])],
        'densenet', [value('data_0', onnx.TensorProto.FLOAT, [1, 3, 224, 224])],
        [value('fc6_1', onnx.TensorProto.FLOAT, [1, 1000, 1, 1])],
        [onnx.helper.make_tensor('axes', onnx.TensorProto.INT64, [4], [0, 1, 2, 3]),
         onnx.helper.make_tensor('zero', onnx.TensorProto.FLOAT, [], [0]),
         onnx.helper.make_tensor('first', onnx.TensorProto.FLOAT, [1000], [1] + [0] * 999),
         onnx.helper.make_tensor('shape', onnx.TensorProto.INT64, [4], [1, 1000, 1, 1])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid('', 18)], ir_version=10)
    onnx.save(model, folder / '1' / 'model.onnx')


def models_of_control(place):
    """The repository of Triton's script has seven models, which the program counts; for gRPC it has eight."""
    models = models_of_examples(place)
    shutil.rmtree(models.folder / 'custom_identity_int32')


IMAGE = '../images/vulture.jpeg'
PROGRAMS = [
    'grpc_client.py', 'grpc_explicit_byte_content_client.py', 'grpc_explicit_int8_content_client.py',
    'grpc_explicit_int_content_client.py', f'grpc_image_client.py -m densenet_onnx -s INCEPTION -c 1 -b 1 {IMAGE}',
    f'image_client.py -m densenet_onnx -s INCEPTION -c 1 -b 1 {IMAGE}',
    f'image_client.py -m densenet_onnx -s INCEPTION -a -c 1 -b 1 {IMAGE}',
    f'image_client.py -m densenet_onnx -s INCEPTION -i grpc -u localhost:8001 -c 1 -b 1 {IMAGE}',
    f'image_client.py -m densenet_onnx -s INCEPTION -i grpc -u localhost:8001 --streaming -c 1 -b 1 {IMAGE}',
    'reuse_infer_objects_client.py', 'simple_grpc_aio_infer_client.py', 'simple_grpc_aio_sequence_stream_infer_client.py',
    'simple_grpc_async_infer_client.py', 'simple_grpc_cudashm_client.py', 'simple_grpc_custom_args_client.py',
    'simple_grpc_health_metadata.py', 'simple_grpc_infer_client.py', 'simple_grpc_keepalive_client.py',
    'simple_grpc_sequence_stream_infer_client.py',
    'simple_grpc_sequence_sync_infer_client.py',
    'simple_grpc_shm_client.py', 'simple_grpc_shm_string_client.py', 'simple_grpc_string_infer_client.py',
    'simple_http_aio_infer_client.py', 'simple_http_async_infer_client.py', 'simple_http_cudashm_client.py',
    'simple_http_health_metadata.py', 'simple_http_infer_client.py', 'simple_http_sequence_sync_infer_client.py',
    'simple_http_shm_client.py', 'simple_http_shm_string_client.py',
    'simple_http_string_infer_client.py', 'memory_growth_test.py -r 100', 'memory_growth_test.py -i grpc -r 100']
CUDA = 'simple_grpc_cudashm_client.py', 'simple_http_cudashm_client.py'

SUITES = [
    Programs(CLIENT_EXAMPLES, models_of_examples, [*SERVE, '--allow-client-shm=true'],
             [program for program in PROGRAMS if program not in CUDA]),
    Programs(CLIENT_EXAMPLES, models_of_control, [*SERVE, '--model-control-mode=explicit'],
             ['simple_http_model_control.py']),
    Programs(CLIENT_EXAMPLES, models_of_examples, [*SERVE, '--model-control-mode=explicit'],
             ['simple_grpc_model_control.py']),
    NotRun(CLIENT_EXAMPLES, len(CUDA), f'simple_…_cudashm_client.py: {GPU}'),
    NotRun(CLIENT_EXAMPLES, 1, 'ensemble_image_client.py: an ensemble whose first step decodes pictures with a backend of a tutorial'),
    NotRun(CLIENT_EXAMPLES, 1, f'simple_grpc_custom_repeat.py: {CUSTOM}'),
    NotRun(CLIENT_EXAMPLES, 3, f'simple_…_sequence_…_client.py -d: {CUSTOM}'),
]
