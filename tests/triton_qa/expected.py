"""The cases of Triton's tests that come out otherwise here than with Triton, each with its reason. A failure that is not
listed, and a listed case that passes, is an error of the run."""

BAD_REQUEST = '400 here, as the request is wrong; Triton has 500, which its test calls a mistake or keeps by habit'
TOO_LARGE = '413 here for what is larger than a limit; Triton has 400'
NO_CHUNK_LIMIT = 'no limit of the number of chunks: memory does not depend on how a body is cut'
FIRST_INPUT = 'the first wrong input is named and all of its elements are counted; Triton names the last and stops counting'
NOT_REPEATED = 'errors about shared memory repeat no name and no key, which could be those of another client'

# Suite: {case, or "label case" where the suite has labels: reason}
DIFFERENCES = {
    'L0_http': {
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
    },
    'L0_implicit_state': {
        'ImplicitStateTest.test_request_output_not_allowed':
            'an output that a model does not have is refused in other words, with the outputs that it has',
    },
    'L0_server_status': {
        'ServerMetadataTest.test_basic': 'the extension cuda_shared_memory is not announced: no region can be registered',
    },
    'L0_shared_memory': {
        f'{protocol} SharedMemoryTest.test_{case}': NOT_REPEATED for protocol in ('http', 'grpc') for case in (
            'register_invalid_shm_key', 'register_reserved_names', 'reregister_after_register')
    },
}
