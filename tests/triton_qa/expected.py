"""The cases of Triton's tests that come out otherwise here than with Triton, each with its reason. A failure that is not
listed, and a listed case that passes, is an error of the run."""

BAD_REQUEST = '400 here, as the request is wrong; Triton has 500, which its test calls a mistake or keeps by habit'
TOO_LARGE = '413 here for what is larger than a limit; Triton has 400'
NO_CHUNK_LIMIT = 'no limit of the number of chunks: memory does not depend on how a body is cut'
FIRST_INPUT = 'the first wrong input is named and all of its elements are counted; Triton names the last and stops counting'
NOT_REPEATED = 'errors about shared memory repeat no name and no key, which could be those of another client'
WHOLE_NUMBER = 'a number beyond 2^63-1 is refused where it is read, with the path of its field'
OTHER_SHAPES = ('requests of other shapes, or with other inputs, do not end the wait of a batch: with Triton each ends it, and '
                'mixed requests are executed one by one')
HALF_TIMEOUT = ('a request that would time out while it waits for its batch is executed after half of its timeout; Triton lets '
                'it wait, and refuses it')
LATE_REQUESTS = 'requests that still come while the server drains are answered; Triton refuses connections'
OTHER_WORDS = 'refused with 400 as by Triton, in other words, which name the path of the member'
UNREGISTERED = ("a region's name is free at once, and requests that use it go on; Triton lists it until the last of them has ended")
OTHER_VERSIONS = "a version that fails to load leaves the model's other versions serving; Triton serves none of them"

# Cases that measure response times: suite: {case: what a failure says that is the machine's, busy with other programs}. What
# is wrong in a queue is late by its delay, ten seconds.
LATE = r'expected less than \d+ms response time, got \d{1,4} ms'
TIMED = {'L0_model_queue': {f'ModelQueueTest.test_{case}': LATE for case in (
    'max_queue_size', 'policy_delay', 'priority_levels')}}

# Suite: {case, or "label case" where the suite has labels: reason}
DIFFERENCES = {
    'L0_http': {
        **{f'GenerateEndpointTest.test_{case}': OTHER_WORDS for case in (
            'complex_schema', 'duplicate_inputs', 'invalid_input_types', 'parameters')},
        'GenerateEndpointTest.test_0_dimension_output':
            'an output of another datatype than that of the configuration is an error; Triton sends it',
        'GenerateEndpointTest.test_generate_stream_response_error':
            'an error in place of the first event of a stream is an answer in JSON, with its status',
        'GenerateEndpointTest.test_json_dtype_size_expansion_exceeds_limit_error': TOO_LARGE,
        'HttpTest.test_buffer_size_overflow': TOO_LARGE,
        'HttpTest.test_content_encoding_chunked_manually':
            'a body with Content-Length and Transfer-Encoding is refused: request smuggling',
        'HttpTest.test_load_oversized_file_parameter': BAD_REQUEST,
        'HttpTest.test_negative_dimensions': BAD_REQUEST,
        'HttpTest.test_repository_index_deeply_nested_json': TOO_LARGE,
        'HTTPRequestManyChunksTest.test_chunked_infer_over_max_chunks_reject_with_bounded_rss_growth': NO_CHUNK_LIMIT,
        'HTTPRequestManyChunksTest.test_chunked_infer_rejected_over_max_chunks': NO_CHUNK_LIMIT,
        **{f'default limit InferSizeLimitTest.test_{case}': TOO_LARGE for case in (
            'default_limit_raw_binary', 'default_limit_json', 'default_limit_compressed', 'large_string_in_json',
            'json_dtype_size_expansion_exceeds_limit_error')},
        'default limit InferSizeLimitTest.test_no_leak_on_invalid_inference_header_length':
            'freed memory goes back to the system after ten seconds; until then it grows by 65 MiB, however many requests',
        **{f'higher limit InferSizeLimitTest.test_large_input_{case}': TOO_LARGE for case in (
            'raw_binary', 'json', 'compressed')},
    },
    'L0_input_validation': {
        'InputShapeTest.test_input_string_shape_validation': FIRST_INPUT,
        'ModelNameValidationTest.test_model_name_invalid_load':
            'a name of dots and spaces leads nowhere: it is looked up, and not found',
    },
    'L0_trace': {
        'TraceEndpointTest.test_grpc_update_settings': 'the trace file is refused before the model is looked up',
        'OpenTelemetryTest.test_trace_context_exposed_to_pbe': 'models in Python get no trace context',
    },
    'L0_large_payload': {
        'LargePayLoadTest.test_onnx': 'a tensor has at most 2^28 elements (--max-tensor-elements); this one has 1.9 GiB',
    },
    'L0_grpc': {
        'TestGrpcAioClient.test_register_cuda_shared_memory': 'CUDA memory: UNIMPLEMENTED says that no region can be registered',
        'TestGrpcAioClient.test_register_system_shared_memory': NOT_REPEATED,
    },
    'L0_batcher': {
        f'shapes BatcherTest.test_multi_batch_{case}': OTHER_SHAPES for case in (
            'different_shape', 'not_preferred_different_shape', 'preferred_different_shape')
    },
    'L0_simple_ensemble': {
        'EnsembleTest.test_ensemble_partial_add_sub': "looks for a line of Triton's log",
    },
    'L0_optional_input': {
        'OptionalInputTest.test_ensemble_optional_pipeline':
            'the identity backend refuses a request without the input of an output that is asked for',
        **{f'OptionalInputTest.test_{case}': OTHER_SHAPES for case in (
            'optional_mix_inputs', 'optional_mix_inputs_2', 'ensemble_optional_mix_inputs', 'ensemble_optional_mix_inputs_2')}
    },
    'L0_model_queue': {
        'ModelQueueTest.test_policy_reject': HALF_TIMEOUT,
        'ModelQueueTest.test_timeout_override': HALF_TIMEOUT,
        'ModelQueueTest.test_priority_with_policy': HALF_TIMEOUT,
        'ModelQueueTest.test_max_priority_levels': 'at most 1000 levels of priority: their queues are made when the model is loaded',
    },
    'L0_metrics': {
        'MetricsPendingRequestCountTest.test_default_scheduler':
            'requests are batched without dynamic_batching, too, so that fewer of them wait',
        'TestHistogramMetrics.test_ensemble_decoupled':
            'the sum of a histogram has fractions of a millisecond; Triton counts whole ones',
        'TestHistogramMetrics.test_buckets_override': 'buckets up to 0 ms are refused: no time is in them',
    },
    'L0_lifecycle': {
        'LifeCycleTest.test_parse_error_modelfail': OTHER_VERSIONS,
        'LifeCycleTest.test_parse_error_modelfail_nostrict': OTHER_VERSIONS,
        'LifeCycleTest.test_parse_error_no_model_config':
            'a model without the configuration that it needs has failed, and --strict-readiness says so; Triton ignores it',
        'LifeCycleTest.test_dynamic_version_load_unload':
            'a version whose directory is gone is not found; Triton remembers that it was there',
        'LifeCycleTest.test_model_reload_fail': 'the reason why instances on a GPU are refused names the line, and what would do',
        'LifeCycleTest.test_config_override':
            "a load without `config` returns to the configuration of the files; Triton keeps that of an earlier request",
        'LifeCycleTest.test_shutdown_dynamic': LATE_REQUESTS,
        'LifeCycleTest.test_shutdown_ensemble': LATE_REQUESTS,
        'LifeCycleTest.test_shutdown_while_background_unloading':
            "a model of the identity backend needs its tensors in the configuration; Triton's does not",
        'LifeCycleTest.test_concurrent_model_load_unload': 'an unload cancels a load that runs; with Triton it waits for its end',
        'LifeCycleTest.test_concurrent_same_model_load_unload_stress':
            'a load that an unload cancels says so, in other words than any of the four that Triton has for it',
    },
    'client examples': {
        'simple_grpc_model_control.py': BAD_REQUEST,
    },
    'L0_server_status': {
        'ServerMetadataTest.test_basic': 'the extension cuda_shared_memory is not announced: no region can be registered',
    },
    'L0_shared_memory': {
        **{f'{protocol} SharedMemoryTest.test_{case}': NOT_REPEATED for protocol in ('http', 'grpc') for case in (
            'register_invalid_shm_key', 'register_reserved_names', 'reregister_after_register')},
        **{f'{protocol} TestSharedMemoryUnregister.test_unregister_shm_during_inference_{case}_{protocol}': UNREGISTERED
           for protocol in ('http', 'grpc') for case in ('single_req', 'multiple_req')},
        'http SharedMemoryTest.test_infer_integer_overflow': WHOLE_NUMBER,
        'http SharedMemoryTest.test_infer_offset_out_of_bound': WHOLE_NUMBER,
    },
}
