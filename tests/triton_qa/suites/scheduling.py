"""Schedulers: batches, queues and their policies, sequences, implicit state, ragged batches, cancellation."""
from plan import NotRun, Run
from suites.common import CUSTOM, DELAY_HOOK, SERVE, SHARED, custom_zero, delay, in_python, made

# L0_batcher

BATCHED = 'preferred_batch_size: [ 2, 6 ], max_queue_delay_microseconds: 10000000'


def batcher_models(place, name='qa_model_repository', batching=BATCHED):
    models = place.repository()
    model = 'onnx_float32_float32_float32'
    models.add(made(place, model, name))
    models.edit(model, r'(?m)^max_batch_size:.*$', 'max_batch_size: 8')
    models.edit(model, r'(?m)^version_policy:.*$', 'version_policy: { specific { versions: [1] }}')
    models.append(model, f'dynamic_batching {{ {batching} }}')
    return models


def variable_batcher_models(place):
    models = batcher_models(place, 'qa_variable_model_repository')
    models.edit('onnx_float32_float32_float32', '16', '-1')
    custom_zero(models, batch=8)
    models.edit('custom_zero_1_float32', 'name: "INPUT0"', 'name: "INPUT0"\n    allow_ragged_batch: true')
    models.append('custom_zero_1_float32', f'dynamic_batching {{ {BATCHED} }}')
    onnx = 'onnx_zero_1_float32'
    models.add(made(place, 'onnx_nobatch_zero_1_float32', 'qa_identity_model_repository'), onnx)
    models.edit(onnx, r'(?m)^max_batch_size:.*$', 'max_batch_size: 8')
    models.edit(onnx, 'name: "INPUT0"', 'name: "INPUT0"\n    allow_ragged_batch: true')
    models.append(onnx, f'batch_output [{{target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
                        f'source_input: "INPUT0" }}] dynamic_batching {{ {BATCHED} }}')


def queue_delay_models(us):
    def models_of(place):
        models = place.repository()
        custom_zero(models, batch=100)
        models.append('custom_zero_1_float32', f'dynamic_batching {{ max_queue_delay_microseconds: {us} }}')
        delay(models, 'custom_zero_1_float32', 100)
    return models_of


def batcher(cases):
    return [f'BatcherTest.{case}' for case in cases.split()]


DELAYED = batcher('''test_multi_batch_delayed_sum_gt_max_preferred test_multi_batch_use_biggest_preferred
    test_multi_batch_use_best_preferred test_multi_batch_delayed_use_max_batch test_multi_batch_preserve_ordering
    test_multi_batch_delayed_preferred_different_shape test_preferred_batch_only_aligned
    test_preferred_batch_only_unaligned test_preferred_batch_only_use_biggest_preferred
    test_preferred_batch_only_use_no_preferred_size''')
NO_DELAY = batcher('''test_static_batch_preferred test_static_batch_lt_any_preferred test_static_batch_not_preferred
    test_static_batch_gt_max_preferred test_multi_batch_not_preferred test_multi_batch_gt_max_preferred
    test_multi_batch_sum_gt_max_preferred test_multi_same_output0 test_multi_same_output1 test_multi_different_outputs
    test_multi_different_output_order''')

BATCHER = [
    *[Run('L0_batcher', 'batcher_test.py', models, [*SERVE, *arguments], label=label, cases=NO_DELAY, restart=True, attempts=3,
          not_run=dict.fromkeys(DELAYED, DELAY_HOOK) if label == 'fixed' else {},
          env={'BACKENDS': 'onnx', 'BATCHER_TYPE': label.split()[0].upper(), **env})
      for models, name in ((batcher_models, 'fixed'), (variable_batcher_models, 'variable'))
      for label, arguments, env in ((name, [], {}), (f'{name} shm', ['--allow-client-shm=true'], SHARED))],
    Run('L0_batcher', 'batcher_test.py', variable_batcher_models, SERVE, label='shapes', restart=True, attempts=3,
        cases=batcher('''test_multi_batch_not_preferred_different_shape test_multi_batch_preferred_different_shape
            test_multi_batch_different_shape_allow_ragged test_multi_batch_different_shape'''),
        env={'BACKENDS': 'onnx', 'BATCHER_TYPE': 'VARIABLE'}),
    Run('L0_batcher', 'batcher_test.py', queue_delay_models(0), SERVE, cases=batcher('test_max_queue_delay_only_default'), attempts=3,
        env={'MAX_QUEUE_DELAY_MICROSECONDS': '0', 'BACKENDS': 'onnx'}),
    Run('L0_batcher', 'batcher_test.py', queue_delay_models(20000), SERVE,
        cases=batcher('test_max_queue_delay_only_non_default'), attempts=3,
        env={'MAX_QUEUE_DELAY_MICROSECONDS': '20000', 'BACKENDS': 'onnx'}),
]

# L0_model_queue

PREFERRED = 'preferred_batch_size: [ 4, 8 ]'
LONG = f'{PREFERRED} max_queue_delay_microseconds: 10000000'


def queue_models(batching, execute_ms=None):
    def models_of(place):
        models = place.repository()
        models.add(place.dir / 'ensemble_zero_1_float32', version_dir=True)
        custom_zero(models, batch=32)
        models.append('custom_zero_1_float32',
                      f'instance_group [ {{ kind: KIND_CPU count: 1 }}] dynamic_batching {{ {batching} }}')
        if execute_ms is not None:
            delay(models, 'custom_zero_1_float32', execute_ms)
    return models_of


POLICIES = [
    ('test_max_queue_size', queue_models(f'{PREFERRED} default_queue_policy {{ max_queue_size: 8 }}', 5000)),
    ('test_policy_delay', queue_models(
        f'{LONG} default_queue_policy {{ timeout_action: DELAY default_timeout_microseconds: 100000 }}')),
    ('test_policy_reject', queue_models(f'{LONG} default_queue_policy {{ default_timeout_microseconds: 100000 }}')),
    ('test_timeout_override', queue_models(
        f'{LONG} default_queue_policy {{ allow_timeout_override: true default_timeout_microseconds: 1000000 }}')),
    ('test_priority_levels', queue_models(f'{LONG} priority_levels: 2 default_priority_level: 2')),
    ('test_max_priority_levels', queue_models(
        f'{LONG} priority_levels: {2**64 - 1} default_priority_level: {2**32}')),
    ('test_priority_with_policy', queue_models(
        'preferred_batch_size: [ 4, 8, 32 ] max_queue_delay_microseconds: 10000000 priority_levels: 2 '
        'default_priority_level: 2 default_queue_policy { timeout_action: DELAY allow_timeout_override: true '
        'default_timeout_microseconds: 11000000 } priority_queue_policy { key: 2 value: { timeout_action: REJECT '
        'allow_timeout_override: true default_timeout_microseconds: 11000000 } }')),
]
QUEUES = [Run('L0_model_queue', 'model_queue_test.py', models, SERVE, cases=[f'ModelQueueTest.{case}'], attempts=4)
          for case, models in POLICIES]

# L0_sequence_batcher, also with implicit state


def sequence_models(trial, implicit='', datatypes=('int32', 'bool')):
    fixed = f'qa_sequence_{implicit}model_repository'
    variable = f'qa_variable_sequence_{implicit}model_repository'

    def models_of(place):
        models = place.repository()
        nobatch = 'nobatch_' if trial == '0' else ''
        name = variable if trial == 'v' else fixed
        for datatype in datatypes:
            models.add(made(place, f'onnx_{nobatch}sequence_{datatype}', name))
            if datatype != 'bool':
                models.add_all(f'qa_ensemble_model_repository/{name}', f'*_onnx_{nobatch}sequence_{datatype}')
        batch, count = {'0': (None, 4), '1': (4, 1), '2': (2, 2), '4': (1, 4), 'v': (4, 1)}[trial]
        for folder in sorted(models.folder.iterdir()):
            if batch is not None:
                models.edit(folder.name, r'(?m)^max_batch_size:.*$', f'max_batch_size: {batch}')
            models.edit(folder.name, 'kind: KIND_CPU', f'kind: KIND_CPU\ncount: {count}')
        models.add_all(f'qa_ensemble_model_repository/{fixed}', 'nop_*')
    return models_of


def sequence(cases):
    return [f'SequenceBatcherTest.{case}' for case in cases.split()]


SEQUENCES = sequence('''test_simple_sequence test_length1_sequence test_batch_size test_no_sequence_start
    test_no_sequence_start2 test_no_sequence_end test_no_correlation_id''')
SEQUENCES_DELAYED = sequence('''test_backlog_fill test_backlog_fill_no_end test_backlog_same_correlation_id
    test_backlog_same_correlation_id_no_end test_backlog_sequence_timeout test_half_batch test_skip_batch test_full_batch
    test_ragged_batch test_backlog test_queue_delay_no_min_util test_queue_delay_half_min_util
    test_queue_delay_full_min_util test_ragged_batch_allowed''')
SEQUENCES_NOT_RUN = {
    **dict.fromkeys(SEQUENCES_DELAYED, DELAY_HOOK),
    'SequenceBatcherRequestTimeoutTest.test_request_timeout': CUSTOM,
    'SequenceBatcherRequestTimeoutTest.test_send_request_after_timeout': CUSTOM,
}


def sequence_env(trial, **more):
    return {'BACKENDS': 'onnx', 'ENSEMBLES': '1', 'NO_BATCHING': '1' if trial == '0' else '0',
            'MODEL_INSTANCES': {'v': '1', '0': '4'}.get(trial, trial),
            'BATCHER_TYPE': 'VARIABLE' if trial == 'v' else 'FIXED', 'IMPLICIT_STATE': '0',
            'INITIAL_STATE_ZERO': '0', 'INITIAL_STATE_FILE': '0', **more}


def ordering_models(place):
    models = place.repository()
    for name in ('seqpy_no_preserve_ordering_nondecoupled', 'seqpy_preserve_ordering_nondecoupled'):
        in_python(models, place.qa / 'python_models' / 'sequence_py', name)
    models.edit('seqpy_preserve_ordering_nondecoupled', 'preserve_ordering: False', 'preserve_ordering: True')


SEQUENCE = [
    Run('L0_sequence_batcher', 'sequence_batcher_test.py', sequence_models(trial), SERVE, label=trial, cases=SEQUENCES,
        not_run=SEQUENCES_NOT_RUN if trial == '0' else {}, restart=True, attempts=3, env=sequence_env(trial))
    for trial in ('0', '1', '2', '4', 'v')] + [
    Run('L0_sequence_batcher', 'sequence_batcher_test.py', ordering_models, SERVE, label='order', attempts=3,
        env=sequence_env('1'),
        cases=[f'SequenceBatcherPreserveOrderingTest.test_sequence_{case}_preserve_ordering' for case in (
            'with', 'without')])]

# L0_implicit_state


def state_models(place):
    models = place.repository()
    source = made(place, 'onnx_nobatch_sequence_int32', 'qa_sequence_implicit_model_repository')
    models.add(source)
    models.add(source, 'onnx_nobatch_sequence_int32_output')
    models.append('onnx_nobatch_sequence_int32_output',
                  'output [{ name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] }]')


STATE = [
    Run('L0_implicit_state', 'implicit_state.py', state_models, SERVE, env={'BACKENDS': 'onnx'},
        cases=['ImplicitStateTest.test_request_output', 'ImplicitStateTest.test_request_output_not_allowed'],
        not_run={f'ImplicitStateTest.{case}': CUSTOM for case in (
            'test_implicit_state_growable_memory', 'test_no_implicit_state', 'test_no_update',
            'test_implicit_state_single_buffer', 'test_wrong_implicit_state_name')}),
]

# L0_batch_input


def ragged_models(place):
    models = place.repository()
    source = made(place, 'onnx_batch_input', 'qa_ragged_model_repository')
    models.add(source, 'ragged_element_count_acc_zero')
    models.add(source, 'ragged_acc_shape')
    models.edit('ragged_acc_shape', 'BATCH_ELEMENT_COUNT', 'BATCH_ACCUMULATED_ELEMENT_COUNT')
    models.edit('ragged_acc_shape', 'BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO', 'BATCH_MAX_ELEMENT_COUNT_AS_SHAPE')
    models.add(source, 'batch_item_flatten')
    models.edit('batch_item_flatten', '-1', '-1, -1', count=1)
    models.edit('batch_item_flatten', 'BATCH_ELEMENT_COUNT', 'BATCH_ACCUMULATED_ELEMENT_COUNT')
    models.edit('batch_item_flatten', 'BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO', 'BATCH_ITEM_SHAPE_FLATTEN')
    models.add(made(place, 'onnx_batch_item', 'qa_ragged_model_repository'), 'batch_item')
    models.add(made(place, 'onnx_nobatch_zero_1_float32', 'qa_identity_model_repository'), 'ragged_io')
    models.edit('ragged_io', r'(?m)^max_batch_size:.*$', 'max_batch_size: 4')
    models.edit('ragged_io', 'name: "INPUT0"', 'name: "INPUT0"\nallow_ragged_batch: true')
    models.append('ragged_io', 'batch_output [{target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE '
                               'source_input: "INPUT0" }] dynamic_batching { max_queue_delay_microseconds: 1000000 }')


RAGGED = [Run('L0_batch_input', 'batch_input_test.py', ragged_models, SERVE, env={'BACKENDS': 'onnx'})]

# L0_request_cancellation

IDENTITY = 'backend: "identity"\ninstance_group [{ kind: KIND_CPU }]\n'


def cancelled_models(place):
    models = place.repository()
    models.write('custom_identity_int32', f'''{IDENTITY} max_batch_size: 1024
input [{{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }}]
output [{{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }}]''')
    delay(models, 'custom_identity_int32', 10000)


def scheduler_models(place):
    models = place.repository()
    tensors = '''input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }]'''
    for name, batching in (('dynamic_batch', 'max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 600000 }'),
                           ('sequence_direct', 'max_batch_size: 1 sequence_batching { direct { } '
                            'max_sequence_idle_microseconds: 6000000 }'),
                           ('sequence_oldest', 'max_batch_size: 1 sequence_batching { oldest { '
                            'max_candidate_sequences: 1 } max_sequence_idle_microseconds: 6000000 }')):
        models.write(name, f'{IDENTITY} {tensors} {batching}')
        delay(models, name, 6000)
    step = '''{ model_name: "dynamic_batch" model_version: -1 input_map { key: "INPUT0" value: "%s" }
                output_map { key: "OUTPUT0" value: "%s" } }'''
    models.write('ensemble_model', f'''platform: "ensemble" max_batch_size: 1 {tensors}
ensemble_scheduling {{ step [ {step % ("INPUT0", "out")}, {step % ("out", "OUTPUT0")} ] }}''')


PROCESS_HOOK = 'needs TRITONSERVER_DELAY_GRPC_…, hooks in the gRPC server of Triton that make it slower'
CANCELLATION = [
    Run('L0_request_cancellation', 'grpc_cancellation_test.py', cancelled_models, SERVE, restart=True,
        cases=[f'GrpcCancellationTest.{case}' for case in (
            'test_grpc_async_infer', 'test_grpc_stream_infer', 'test_aio_grpc_async_infer', 'test_aio_grpc_stream_infer')],
        not_run={f'GrpcCancellationTest.{case}': PROCESS_HOOK for case in (
            'test_grpc_async_infer_cancellation_at_step_start',
            'test_grpc_async_infer_response_complete_during_cancellation',
            'test_grpc_async_infer_cancellation_before_finish_0', 'test_grpc_async_infer_cancellation_before_finish_1',
            'test_grpc_async_infer_cancellation_before_response_complete_and_process_after_final_response')}),
    Run('L0_request_cancellation', 'scheduler_test.py', scheduler_models, SERVE, attempts=3),
    NotRun('L0_request_cancellation', 1, 'implicit_state_test.py: a model of LibTorch'),
]

SUITES = [*BATCHER, *QUEUES, *SEQUENCE, *STATE, *RAGGED, *CANCELLATION]
