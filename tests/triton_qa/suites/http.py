"""What is tested over HTTP: requests, restricted APIs, limits of bodies, generate."""
from plan import NotRun, Run
from suites.common import SERVE, example_models, in_python, made, simple_identity

QUEUED = '''dynamic_batching {
    max_queue_delay_microseconds: 1000000
    preferred_batch_size: [ 8 ]
    default_queue_policy { max_queue_size: 1 }
}'''
IDENTITY = 'qa_identity_model_repository'


def http_models(place):
    models = place.repository()
    for name in ('onnx_zero_1_float32', 'onnx_zero_1_object', 'onnx_zero_1_float16', 'onnx_zero_3_float32'):
        models.add(made(place, name, IDENTITY))
    models.add(made(place, 'onnx_zero_1_object', IDENTITY), 'onnx_zero_1_object_1_element')
    models.edit('onnx_zero_1_object_1_element', '-1', '1', count=1)
    models.add(made(place, 'onnx_zero_1_float32', IDENTITY), 'onnx_zero_1_float32_queue')
    models.append('onnx_zero_1_float32_queue', QUEUED)
    simple_identity(models)
    models.add(models.folder / 'simple_identity', 'simple_identity_int64')
    models.edit('simple_identity_int64', 'TYPE_STRING', 'TYPE_INT64')


def size_models(place):
    models = place.repository()
    models.add(made(place, 'onnx_zero_1_float32', IDENTITY))
    simple_identity(models)


def aio_models(place):
    """The repository of Triton's script has seven models, which a case counts."""
    models = example_models(place)
    models.add(place.examples / 'simple_dyna_sequence', 'simple_string_dyna_sequence')
    return models


def grpc_aio_models(place):
    """That for gRPC has eight."""
    models = aio_models(place)
    models.add(models.folder / 'simple_identity', 'simple_identity_2')


def generate_models(place):
    models = place.repository()
    for source in sorted((place.qa / 'python_models' / 'generate_models').iterdir()):
        in_python(models, source)


def plugin_models(place):
    in_python(place.repository(), place.dir / 'client_plugin_models' / 'client_plugin_test')


def unit_models(place):
    models = place.repository()
    models.add(place.examples / 'simple')
    in_python(models, place.qa / 'python_models' / 'string_identity')
    models.edit('string_identity', r'dims: \[ 1 \]', 'dims: [ -1 ]')


SUITES = [
    Run('L0_http', 'http_test.py', http_models, [*SERVE, '--model-control-mode=explicit', '--load-model=*'],
        not_run={'HttpTest.test_loading_large_invalid_model': 'makes a body of 2.7 GiB, with 10 GiB of memory'}),
    Run('L0_http', 'python_http_aio_test.py', aio_models, [*SERVE, '--allow-client-shm=true']),
    Run('L0_http', 'http_client_plugin_test.py', example_models, [*SERVE, '--allow-client-shm=true']),
    Run('L0_http', 'http_restricted_api_test.py', example_models,
        [*SERVE, '--http-restricted-api=model-repository:admin-key=admin-value',
         '--http-restricted-api=inference,metadata:infer-key=infer-value']),
    Run('L0_http', 'http_request_many_chunks.py', example_models,
        [*SERVE, '--allow-client-shm=true', '--model-control-mode=explicit', '--load-model=simple']),
    Run('L0_http', 'http_input_size_limit_test.py', size_models, SERVE, label='default limit',
        cases=['InferSizeLimitTest.test_default_limit_raw_binary', 'InferSizeLimitTest.test_default_limit_json',
               'InferSizeLimitTest.test_large_string_in_json', 'InferSizeLimitTest.test_default_limit_compressed',
               'InferSizeLimitTest.test_json_dtype_size_expansion_exceeds_limit_error',
               'InferSizeLimitTest.test_no_leak_on_invalid_inference_header_length']),
    Run('L0_http', 'http_input_size_limit_test.py', size_models, [*SERVE, f'--http-max-input-size={2**27}'],
        label='higher limit',
        cases=['InferSizeLimitTest.test_large_input_raw_binary', 'InferSizeLimitTest.test_large_input_json',
               'InferSizeLimitTest.test_large_input_compressed']),
    Run('L0_http', 'generate_endpoint_test.py', generate_models, SERVE),
    NotRun('L0_http', 1, 'http_basic_auth_test.py: needs nginx before the server'),
    Run('L0_grpc', 'python_grpc_aio_test.py', grpc_aio_models, [*SERVE, '--allow-client-shm=true']),
    Run('L0_grpc', 'python_unit_test.py', unit_models, SERVE,
        cases=['GrpcTest.test_duplicate_output_names_rejected', 'GrpcTest.test_bytes_contents_many_elements_serialization']),
    Run('L0_grpc', 'python_unit_test.py', example_models,
        [*SERVE, '--grpc-restricted-protocol=model-repository:admin-key=admin-value',
         '--grpc-restricted-protocol=inference,health:infer-key=infer-value'], live=True,
        cases=[f'RestrictedProtocolTest.test_{case}' for case in (
            'sanity', 'model_repository', 'health', 'infer', 'stream_infer')]),
    Run('L0_grpc', 'grpc_client_plugin_test.py', plugin_models,
        [*SERVE, '--http-header-forward-pattern=.*', '--grpc-header-forward-pattern=.*']),
    NotRun('L0_grpc', 1, 'grpc_basic_auth_test.py: needs nginx before the server'),
]
