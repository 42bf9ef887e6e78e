"""What an operator does: load and unload, shared memory, status, logs, traces, metrics, cache, checksums."""
import hashlib
import pathlib
import shutil
import sys
import time

from plan import NotRun, Programs, Run
from suites.common import (CUSTOM, GPU, SERVE, delay, example_models, in_place_of_python, in_python, made, stand_in)

# L0_input_validation


def validation_models(place):
    models = place.repository()
    for name in ('input_all_optional', 'input_all_required', 'input_optional'):
        in_python(models, place.qa / 'L0_input_validation' / 'models' / name)


def shape_models(place):
    models = place.repository()
    models.add(made(place, 'onnx_object_int32_int32'))
    models.write('pt_identity', '''backend: "identity" max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [8] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [8] } ]
dynamic_batching { max_queue_delay_microseconds: 1000000 }''')


def no_models(place):
    place.repository()


VALIDATION = 'input_validation_test.py'
INPUT_VALIDATION = [
    Run('L0_input_validation', VALIDATION, validation_models, SERVE,
        cases=[f'InputValTest.test_input_validation_{case}' for case in (
            'required_empty', 'optional_empty', 'required_missing', 'optional', 'all_optional')]),
    Run('L0_input_validation', VALIDATION, shape_models, [*SERVE, '--allow-client-shm=true'],
        cases=['InputShapeTest.test_input_shape_validation', 'InputShapeTest.test_input_string_shape_validation'],
        not_run={'InputShapeTest.test_wrong_input_shape_tensor_size': 'shape tensors of TensorRT'}),
    Run('L0_input_validation', VALIDATION, no_models, [*SERVE, '--model-control-mode=explicit'],
        cases=[f'ModelNameValidationTest.test_model_name_{case}' for case in (
            'invalid_load', 'empty_load', 'whitespace_only_load', 'invalid_unload', 'valid')]),
]

# L0_shared_memory

SHARED_MEMORY_CASES = [f'SharedMemoryTest.test_{case}' for case in '''invalid_create_shm valid_create_set_register
    unregister_before_register unregister_after_register reregister_after_register unregister_after_inference
    register_after_inference too_big_shm mixed_raw_shm unregisterall infer_offset_out_of_bound
    infer_byte_size_out_of_bound infer_integer_overflow register_out_of_bound register_reserved_names
    register_invalid_shm_key python_client_leak'''.split()]


def large_offset_models(place):
    models = place.repository()
    for framework in ('onnx', 'libtorch', 'plan', 'openvino', 'python'):
        stand_in(models, framework, 'int32_int32_int32', libtorch_outputs=True)
        for version in ('2', '3'):  # these exchange the outputs
            shutil.rmtree(models.folder / f'{framework}_int32_int32_int32' / version)


def slow_simple(place):
    in_python(place.repository(), place.qa / 'python_models' / 'execute_delayed_model', 'simple')


SHARED_MEMORY = [run for protocol in ('http', 'grpc') for run in (
    Run('L0_shared_memory', 'shared_memory_test.py', example_models, SERVE, label=protocol,
        cases=['SharedMemoryTest.test_client_shm_disabled_by_default'], env={'CLIENT_TYPE': protocol}),
    Run('L0_shared_memory', 'shared_memory_test.py', example_models, [*SERVE, '--allow-client-shm=true'], label=protocol,
        cases=SHARED_MEMORY_CASES, restart=True, env={'CLIENT_TYPE': protocol}),
    Run('L0_shared_memory', 'shared_memory_test.py', slow_simple, [*SERVE, '--allow-client-shm=true'], label=protocol,
        cases=[f'TestSharedMemoryUnregister.test_unregister_shm_{case}_{protocol}' for case in (
            'during_inference_single_req', 'during_inference_multiple_req', 'after_inference')],
        restart=True, env={'CLIENT_TYPE': protocol}),
    Run('L0_shared_memory', 'shared_memory_test.py', large_offset_models, [*SERVE, '--allow-client-shm=true'],
        label=protocol, cases=['SharedMemoryTest.test_large_shm_register_offset'], env={'CLIENT_TYPE': protocol}))]

# L0_server_status


def status_models(place):
    models = place.repository()
    models.add_all('qa_model_repository', 'onnx_*')
    for path in models.folder.glob('onnx_*bf16*'):
        shutil.rmtree(path)
    for framework, types in (('libtorch', 'int32_int8_int8'), ('libtorch', 'int32_int32_int32'),
                             ('plan', 'float32_float32_float32'), ('libtorch', 'float32_float32_float32'),
                             ('plan', 'float16_float32_float32'), ('plan', 'int32_int32_int32')):
        stand_in(models, framework, types)
    models.edit('plan_float16_float32_float32', r'(?m)^version_policy:.*$', '')


def change_status_models(place):
    """Versions go and come, which the server sees when it polls."""
    for name in ('libtorch_int32_int32_int32', 'onnx_int32_int32_int32'):
        for version in ('2', '3'):
            shutil.rmtree(place.dir / 'models' / name / version)
    plan = place.dir / 'models' / 'plan_float16_float32_float32'
    shutil.copytree(plan / '1', plan / '7')
    time.sleep(4)  # as Triton's script does


VERSION = {'TRITON_SERVER_VERSION': (pathlib.Path(__file__).parents[3] / 'VERSION').read_text().strip()}
POLL = ['--repository-poll-secs=1', '--model-control-mode=poll']
STATUS = [
    Run('L0_server_status', 'server_status_test.py', status_models, [*POLL, *SERVE], env=VERSION,
        cases=[f'ServerMetadataTest.test_{case}' for case in (
            'basic', 'unknown_model', 'unknown_model_version', 'model_specific_infer')],
        not_run={'ServerMetadataTest.test_model_latest_infer': 'asks for the platform of a model of TensorRT'}),
    Run('L0_server_status', 'server_status_test.py', status_models, [*POLL, *SERVE], after_start=change_status_models,
        cases=[f'ModelMetadataTest.test_{case}' for case in (
            'model_versions_deleted', 'model_versions_added', 'infer_stats_no_model_version')],
        not_run={'ModelMetadataTest.test_infer_stats_no_model': 'counts the models of LibTorch and TensorRT'}),
]

# L0_logging, L0_trace


def simple_models(*names):
    def models_of(place):
        models = place.repository()
        for name in names:
            models.add(made(place, 'onnx_int32_int32_int32'), name)
            for version in ('2', '3'):
                shutil.rmtree(models.folder / name / version)
    return models_of


LOGS = [
    Run('L0_logging', 'logging_endpoint_test.py', simple_models('simple'), SERVE),
    NotRun('L0_logging', 1, "log_format_test.py: compares with the source lines of Triton's log, and uses its Python API"),
]
TRACED_ENSEMBLE = 'ensemble_add_sub_int32_int32_int32'
EXPORTED = ('simple', 'input_all_required', 'dynamic_batch', 'bls_simple', 'trace_context')
OPT_ML = 'wants a model in /opt/ml/models of the machine'


def exported_models(place):
    """Models whose traces go to a collector, for which the tests start ./otelcol."""
    simple_models('simple')(place)
    models = place.repository(keep=True)
    models.add(made(place, 'simple_onnx_int32_int32_int32', 'qa_ensemble_model_repository/qa_model_repository'), TRACED_ENSEMBLE)
    models.edit(TRACED_ENSEMBLE, r'model_name:.*', 'model_name: "simple"')
    for version in ('2', '3'):
        shutil.rmtree(models.folder / TRACED_ENSEMBLE / version, ignore_errors=True)
    in_python(models, place.qa / 'L0_trace' / 'models' / 'input_all_required')
    models.write('dynamic_batch', '''backend: "identity" max_batch_size: 1 instance_group [ { count: 1 kind: KIND_CPU } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
dynamic_batching { preferred_batch_size: [ 1 ]
    default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1000000 max_queue_size: 8 } }''')
    delay(models, 'dynamic_batch', 8000)
    for name, program in (('bls_simple', place.qa / 'python_models' / 'bls_simple' / 'bls_simple.py'),
                          ('trace_context', place.dir / 'trace_context.py')):
        (models.folder / name / '1').mkdir(parents=True)
        shutil.copy(program, models.folder / name / '1' / 'model.py')
    collector = place.dir / 'otelcol'
    collector.write_text(f'#!{sys.executable}\n' + (pathlib.Path(__file__).parents[1] / 'collector.py').read_text())
    collector.chmod(0o755)


TRACES = [
    Run('L0_trace', 'trace_endpoint_test.py', simple_models('simple', 'global_simple'),
        ['--trace-config', 'triton,file=global_unittest.log', '--trace-config', 'level=TIMESTAMPS',
         '--trace-config', 'rate=1', *SERVE]),
    Run('L0_trace', 'opentelemetry_unittest.py', exported_models,
        [*SERVE, '--allow-sagemaker=true', '--model-control-mode=explicit',
         *[f'--load-model={name}' for name in (*EXPORTED, TRACED_ENSEMBLE)], '--trace-config=level=TIMESTAMPS', '--trace-config=rate=1',
         '--trace-config=count=-1', '--trace-config=mode=opentelemetry', '--trace-config=opentelemetry,resource=test.key=test.value',
         '--trace-config=opentelemetry,resource=service.name=test_triton', '--trace-config=opentelemetry,url=localhost:10000/v1/traces'],
        env={'SAGEMAKER_TRITON_DEFAULT_MODEL_NAME': 'simple'},
        not_run={f'OpenTelemetryTest.{case}': reason for case, reason in {
            'test_non_decoupled': CUSTOM, 'test_custom_backend_tracing': CUSTOM,
            'test_custom_backend_tracing_context_propagation': CUSTOM,
            'test_sagemaker_invoke_trace_simple_model_context_propagation': OPT_ML}.items()}),
]

# L0_metrics


def cached_models(place):
    models = place.repository()
    for name in ('identity_cache_on', 'identity_cache_off'):
        in_place_of_python(models, place.qa / 'L0_metrics' / 'unit_test_models' / name)
        if 'backend' not in (models.folder / name / 'config.pbtxt').read_text():
            models.append(name, 'backend: "identity"')


QUEUE_DELAY_US, MAX_BATCH_SIZE = 100000, 4


def queue_size_models(place):
    models = place.repository()
    batching = f'max_queue_delay_microseconds: {QUEUE_DELAY_US}'
    for name, fields in (
            ('default', ''), ('default_composing', ''),
            ('dynamic', f'dynamic_batching {{ {batching} }}'), ('dynamic_composing', f'dynamic_batching {{ {batching} }}'),
            ('max_queue_size', f'dynamic_batching {{ {batching} default_queue_policy {{ max_queue_size: 4 }} }}'),
            ('sequence_direct', f'sequence_batching {{ direct {{ {batching}, minimum_slot_utilization: 1.0 }} }}'),
            ('sequence_oldest', f'sequence_batching {{ oldest {{ {batching}, max_candidate_sequences: 4 }} }}')):
        models.add(place.qa / 'L0_metrics' / 'identity_delay', version_dir=True).rename(models.folder / name)
        models.edit(name, r'(?m)^name:.*$', '')
        models.edit(name, r'(?m)^max_batch_size.*$', f'max_batch_size: {MAX_BATCH_SIZE}')
        models.append(name, fields)
    models.add(place.qa / 'L0_metrics' / 'ensemble_delay', version_dir=True).rename(models.folder / 'ensemble')


ASYNC = 'async_execute_decouple'


def histogram_models(place):
    """A decoupled model and one that is not, in an ensemble."""
    models = place.repository()
    source = place.qa / 'L0_metrics' / 'ensemble_decoupled'
    models.add(source / 'ensemble', version_dir=True)
    in_python(models, source / ASYNC)
    in_python(models, source / ASYNC, 'async_execute')
    models.edit('async_execute', 'model_transaction_policy.*', '')


def bucket_models(place):
    models = place.repository()
    in_python(models, place.qa / 'python_models' / ASYNC)
    models.append(ASYNC, '''model_metrics { metric_control: [ {
    metric_identifier: { family: "nv_inference_first_response_histogram_ms" }
    histogram_options: { buckets: [ -1, 0.0, 1, 2.5 ] } } ] }''')


def metrics(cases, arguments, label, env=None):
    return Run('L0_metrics', 'metrics_config_test.py', cached_models,
               [*SERVE, '--model-control-mode=explicit', *arguments], label=label, env=env or {},
               cases=[f'MetricsConfigTest.test_{case}' for case in cases.split()])


OFF, ON = '--load-model=identity_cache_off', '--load-model=identity_cache_on'
SUMMARIES, QUANTILES = 'summary_latencies=true', '0.1:0.001,0.7:0.01,0.75:0.01'  # their first error is misspelt
CACHE = ['--cache-config', 'local,size=1048576']
NO_CACHE = 'cache_counters_missing cache_summaries_missing'
METRICS = [
    metrics(f'inf_counters_exist inf_histograms_missing inf_summaries_missing {NO_CACHE}', [OFF], 'default'),
    metrics(f'inf_counters_exist inf_histograms_exist inf_summaries_missing {NO_CACHE}',
            [OFF, '--metrics-config', 'histogram_latencies=true'], 'histograms'),
    metrics(f'inf_counters_exist inf_summaries_exist {NO_CACHE}', [OFF, '--metrics-config', SUMMARIES], 'summaries'),
    metrics(f'inf_counters_missing inf_summaries_exist {NO_CACHE}',
            [OFF, '--metrics-config', SUMMARIES, '--metrics-config', 'counter_latencies=false'], 'no counters'),
    metrics('inf_counters_exist inf_summaries_exist_with_cache cache_counters_exist cache_summaries_exist',
            [*CACHE, ON, '--metrics-config', SUMMARIES, '--metrics-config', 'counter_latencies=true'], 'cache'),
    metrics('summaries_custom_quantiles',
            [OFF, '--metrics-config', SUMMARIES, '--metrics-config', f'summary_quantiles={QUANTILES}'], 'quantiles',
            {'SUMMARY_QUANTILES': QUANTILES}),
    Run('L0_metrics', 'metrics_queue_size_test.py', queue_size_models, SERVE,
        env={'MAX_BATCH_SIZE': str(MAX_BATCH_SIZE), 'MAX_QUEUE_DELAY_US': str(QUEUE_DELAY_US)}, attempts=5),
    NotRun('L0_metrics', 5, f'pinned memory, use of the CPU beside a model of LibTorch: {GPU}'),
    Run('L0_metrics', 'histogram_metrics_test.py', histogram_models, [*SERVE, '--metrics-config', 'histogram_latencies=true'],
        cases=['TestHistogramMetrics.test_ensemble_decoupled'], attempts=3),
    Run('L0_metrics', 'histogram_metrics_test.py', bucket_models,
        [*SERVE, '--model-control-mode=explicit', f'--load-model={ASYNC}', '--metrics-config', 'histogram_latencies=true'],
        cases=['TestHistogramMetrics.test_buckets_override'], env={'OVERRIDE_BUCKETS': '-1,0,1,2.5,+Inf'}),
    NotRun('L0_metrics', 2, 'namespaces: a name is that of one model'),
]

# L0_simple_ensemble, L0_optional_input, L0_response_cache


def ensemble_models(place):
    models = place.repository()
    source = place.qa / 'L0_simple_ensemble' / 'models'
    models.add(source / 'ensemble_add_sub_int32_int32_int32', version_dir=True)
    models.add(source / 'simple', version_dir=True)
    models.add(source / 'ensemble_partial_add_sub', version_dir=True)
    in_python(models, source / 'partial_add_sub')
    for version in ('1', '2'):
        shutil.copytree(place.examples / 'simple' / '1', models.folder / 'simple' / version, dirs_exist_ok=True)


def optional_models(place):
    models = place.repository()
    source = place.qa / 'L0_optional_input' / 'models'
    for path in sorted(source.iterdir()):
        in_python(models, path) if path.name == 'optional_identity' else in_place_of_python(models, path)


PRODUCER, CONSUMER = 'decoupled_producer', 'slow_consumer'


def queue_limit(n):
    return f'dynamic_batching {{ preferred_batch_size: [ 1 ] default_queue_policy {{ max_queue_size: {n} }} }}'


def producer(models, name=PRODUCER, fields=''):
    """A decoupled model, that answers as often as the request says."""
    folder = in_python(models, models.place.qa / 'L0_simple_ensemble' / 'backpressure_test_models' / PRODUCER, name)
    models.append(name, fields)
    return folder / '1' / 'model.py'


def consumer(models, name=CONSUMER, fields=''):
    """A model that takes as many seconds as its input says."""
    folder = in_python(models, models.place.qa / 'python_models' / 'ground_truth', name)
    models.edit(name, 'max_batch_size: 64', 'max_batch_size: 1')
    models.append(name, fields)
    return folder / '1' / 'model.py'


def queue_limit_models(place):
    models = place.repository()
    source = place.qa / 'L0_simple_ensemble' / 'backpressure_test_models' / 'ensemble_disabled_max_inflight_requests'
    for add, member, step in ((producer, PRODUCER, 1), (consumer, CONSUMER, 2)):
        name = f'ensemble_step{step}_enabled_max_queue_size'
        models.add(source, name, version_dir=True)
        models.edit(name, f'"{member}"', f'"{member}_enabled_max_queue_size"')
        add(models)
        add(models, f'{member}_enabled_max_queue_size', queue_limit(4))


def step(model, inputs, outputs):
    maps = [f'{kind}_map {{ key: "{key}" value: "{value}" }}' for kind, pairs in (('input', inputs), ('output', outputs))
            for key, value in pairs.items()]
    return f'{{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}'


def ensemble(models, name, steps, batch=0, fields=''):
    models.write(name, f'''platform: "ensemble" max_batch_size: {batch}
input [ {{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }} ]
ensemble_scheduling {{ {fields} step [ {", ".join(steps)} ] }}''')


def failed_enqueue_models(place):
    models = place.repository()
    made_by = producer(models, 'decoupled_producer_parallel_queue')
    made_by.write_text(made_by.read_text().replace('0.5', '2.0'))
    consumer(models, 'slow_consumer_queue_limited', queue_limit(1))
    fast = consumer(models, 'fast_consumer')
    fast.write_text(fast.read_text().replace('time.sleep(delay)', 'time.sleep(0)'))
    in_python(models, place.qa / 'python_models' / 'join_add_sub')
    ensemble(models, 'ensemble_parallel_step_failed_enqueue', [
        step('decoupled_producer_parallel_queue', {'IN': 'IN'}, {'OUT': 'value'}),
        step('slow_consumer_queue_limited', {'INPUT0': 'value'}, {'OUTPUT0': 'slow'}),
        step('fast_consumer', {'INPUT0': 'value'}, {'OUTPUT0': 'fast'}),
        step('join_add_sub', {'INPUT0': 'slow', 'INPUT1': 'fast'}, {'OUTPUT0': 'OUT'})])


def inflight_models(place):
    """The members are slower than the first of them, which makes a number of requests of one."""
    models = place.repository()
    producer(models)
    models.edit(PRODUCER, 'max_batch_size: 1', 'max_batch_size: 2')
    for name, ms in (('consumer_high_delay', 500), ('consumer_low_delay', 100)):
        models.write(name, '''backend: "identity" max_batch_size: 2 instance_group [ { count: 1 kind: KIND_CPU } ]
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { preferred_batch_size: [ 2 ] }''')
        delay(models, name, ms)
    for name, limit in (('disabled', ''), ('limit_1', 'max_inflight_requests: 1'), ('limit_4', 'max_inflight_requests: 4')):
        ensemble(models, f'ensemble_{name}', [
            step(PRODUCER, {'IN': 'IN'}, {'OUT': 'made'}),
            step('consumer_high_delay', {'INPUT0': 'made'}, {'OUTPUT0': 'once'}),
            step('consumer_low_delay', {'INPUT0': 'once'}, {'OUTPUT0': 'OUT'})], batch=2, fields=limit)


def ensemble_cache_models(place):
    models = place.repository('models/ensemble_models')
    models.add(made(place, 'simple_onnx_float32_float32_float32', 'qa_ensemble_model_repository/qa_model_repository'))
    models.add(made(place, 'onnx_float32_float32_float32'))


def cache_run(case, size):
    return Run('L0_response_cache', 'ensemble_cache_test.py', ensemble_cache_models,
               ['--model-repository=models/ensemble_models', '--cache-config', f'local,size={size}',
                '--model-control-mode=explicit'], cases=[f'EnsembleCacheTest.test_ensemble_{case}'])


ENSEMBLES = [
    Run('L0_simple_ensemble', 'ensemble_test.py', ensemble_models, SERVE, restart=True,
        cases=[f'EnsembleTest.test_ensemble_{case}' for case in ('add_sub', 'sequence_flags', 'add_sub_one_output',
                                                               'partial_add_sub')]),
    *[Run('L0_simple_ensemble', 'ensemble_backpressure_test.py', models, SERVE, restart=True, attempts=3, cases=cases)
      for models, cases in (
          (queue_limit_models, ['EnsembleStepMaxQueueSizeTest.test_step1_max_queue_size',
                                'EnsembleStepMaxQueueSizeTest.test_step2_max_queue_size']),
          (failed_enqueue_models, ['EnsembleParallelFailedEnqueueTest.test_parallel_step_failed_enqueue']),
          (inflight_models, [f'EnsembleBackpressureTest.test_{case}' for case in (
              'single_request_with_different_limits', 'concurrent_requests_with_different_limits',
              'sequential_requests_limiter_resets_cleanly', 'request_cancellation_under_backpressure')]))],
    Run('L0_optional_input', 'optional_input_test.py', optional_models, SERVE, restart=True, attempts=3,
        cases=[f'OptionalInputTest.test_{case}' for case in (
            'all_inputs', 'optional_same_input', 'optional_mix_inputs', 'optional_mix_inputs_2',
            'ensemble_all_inputs', 'ensemble_optional_same_input', 'ensemble_optional_mix_inputs',
            'ensemble_optional_mix_inputs_2', 'ensemble_optional_pipeline', 'ensemble_optional_connecting_tensor')]),
    *[cache_run(case, 10840) for case in ('top_level_response_cache', 'all_models_cache_enabled',
                                          'composing_model_cache_enabled')],
    cache_run('cache_insertion_failure', 200),
]

# L0_repoagent_checksum


def checksum_models(place):
    models = place.repository()
    source = place.qa / 'L0_repoagent_checksum' / 'models' / 'identity_int32'
    folder = models.add(source, version_dir=True)
    library = folder / '1' / 'libtriton_identity.so'  # Triton's build puts its identity backend there
    library.write_bytes(b'any file')
    models.edit('identity_int32', 'invalid_checksum', hashlib.md5(library.read_bytes()).hexdigest())


CHECKSUM = [Programs('L0_repoagent_checksum', checksum_models, SERVE, ['identity_test.py -i http', 'identity_test.py -i grpc'])]

SUITES = [*INPUT_VALIDATION, *SHARED_MEMORY, *STATUS, *LOGS, *TRACES, *METRICS, *ENSEMBLES, *CHECKSUM]
