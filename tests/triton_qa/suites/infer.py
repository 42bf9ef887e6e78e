"""Values: inference of models of all datatypes and shapes, over HTTP and gRPC, with and without shared memory."""
import pathlib
import shutil
import subprocess

import onnx
from models import IR_VERSION
from plan import NotRun, Programs, Run
from suites.common import SERVE, SHARED, custom_zero, in_place_of_python, in_python, made, stand_in, with_ensembles

ENSEMBLES_OF_ONNX = (
    'wrong_label_int32_float32_float32', 'label_override_int32_float32_float32', 'mix_type_int32_float32_float32',
    'batch_to_nobatch_float32_float32_float32', 'batch_to_nobatch_nobatch_float32_float32_float32',
    'nobatch_to_batch_float32_float32_float32', 'nobatch_to_batch_nobatch_float32_float32_float32',
    'mix_nobatch_batch_float32_float32_float32')


def infer_models(place):
    models = with_ensembles(place, 'qa_model_repository')
    for name in ENSEMBLES_OF_ONNX:
        models.add(place.qa / 'ensemble_models' / name, version_dir=True)
    custom_zero(models, batch=8)
    models.add(place.qa / 'custom_models' / 'custom_zero_1_float32', 'custom_nobatch_zero_1_float32', version_dir=True)
    models.edit('custom_nobatch_zero_1_float32', 'max_batch_size: 1', 'max_batch_size: 0')
    models.edit('custom_nobatch_zero_1_float32', r'dims: \[ 1 \]', 'dims: [ -1, -1 ]')


def reshape_models(place):
    models = with_ensembles(place, 'qa_reshape_model_repository')
    for name in ('nobatch_zero_3_float32', 'nobatch_zero_4_float32', 'zero_1_float32', 'zero_2_float32', 'zero_3_float32',
                 'zero_4_float32', 'nobatch_zero_1_int32', 'nobatch_zero_2_int32', 'nobatch_zero_3_int32', 'zero_1_int32',
                 'zero_2_int32', 'zero_3_int32'):
        models.add(models.folder / f'onnx_{name}', f'custom_{name}')
        for path in (models.folder / f'custom_{name}' / '1').iterdir():
            path.unlink()
        models.edit(f'custom_{name}', r'(?m)^platform:.*$', 'backend: "identity"')
    other_frameworks(models, 'qa_reshape_model_repository')
    # TensorRT's have other shapes than those of ONNX.
    tensorrt_zero(models, 2, [[1], [8]], [[1, 1, 1], [4, 1, 2]], [[1], [8]])
    tensorrt_zero(models, 4, [[4, 4], [2], [2, 2, 3], [1]], [[16], [1, 2], [3, 2, 2], [1]],
                  [[2, 2, 4], [1, 2, 1], [3, 2, 2], [1, 1, 1]])


def tensorrt_zero(models, count, inputs, seen, outputs):
    """Stand-ins of the identity backend, which sees the shapes `seen`."""
    for name, batch in ((f'plan_zero_{count}_float32', 8), (f'plan_nobatch_zero_{count}_float32', 0)):
        shutil.rmtree(models.folder / name, ignore_errors=True)
        models.write(name, '\n'.join([f'backend: "identity" max_batch_size: {batch}', *(
            f'{kind.lower()} {{ name: "{kind}{i}" data_type: TYPE_FP32 dims: {dims[i]} reshape {{ shape: {seen[i]} }} }}'
            for kind, dims in (('INPUT', inputs), ('OUTPUT', outputs)) for i in range(count))]))


def other_frameworks(models, repository):
    """Stand-ins for models of LibTorch and TensorRT, which these tests run without being asked to."""
    for source in sorted((models.place.data / repository).glob('onnx_*')):
        for framework in ('libtorch', 'plan'):
            if 'bf16' not in source.name:
                stand_in(models, framework, source.name.removeprefix('onnx_'), repository)


def variable_models(place):
    name = 'qa_variable_model_repository'
    other_frameworks(with_ensembles(place, name, ('plan',)), name)


def scalar_models(place):
    place.repository().add_all('qa_scalar_models')


def string_models(place):
    models = place.repository()
    models.add(made(place, 'onnx_zero_1_object', 'qa_identity_model_repository'))
    in_place_of_python(models, place.qa / 'python_models' / 'string_identity')
    models.edit('string_identity', r'\[ 1 \]', '[ 8 ]')


def large_models(place):
    models = place.repository()
    models.add(made(place, 'onnx_nobatch_zero_1_float32', 'qa_identity_model_repository'))


def null_models(place):
    in_python(place.repository(), place.qa / 'python_models' / 'string', 'python_string')


ROOT = pathlib.Path(__file__).parents[3]


def custom_op_models(place):
    """A model of one operator, in a library beside its configuration."""
    models = place.repository()
    models.write('custom_op', 'platform: "onnxruntime_onnx" max_batch_size: 0\n'
                 'model_operations { op_library_filename: "./libcustom_op_library.so" }')
    folder = models.folder / 'custom_op'
    subprocess.run(['cc', '-std=c17', '-shared', '-fPIC', '-fvisibility=hidden', '-I', ROOT / '.deps' / 'sysroot' / 'usr' / 'include',
                    ROOT / 'tests' / 'triton_qa' / 'custom_op_library.c', '-o', folder / 'libcustom_op_library.so'], check=True)
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3, 5]) for name in ('input_1', 'input_2', 'output')]
    node = onnx.helper.make_node('CustomOpOne', ['input_1', 'input_2'], ['output'], domain='test.customop')
    graph = onnx.helper.make_graph([node], 'custom_op', tensors[:2], tensors[2:])
    opsets = [onnx.helper.make_opsetid('', 17), onnx.helper.make_opsetid('test.customop', 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), folder / '1' / 'model.onnx')


ONNX = {'BACKENDS': 'onnx', 'TRITON_SERVER_CPU_ONLY': '1'}

NOT_SHARED = {
    'L0_infer_reshape': {'InferReshapeTest.test_oo1': 'creates fewer bytes of shared memory than it registers'},
    'L0_infer_variable': {f'InferVariableTest.test_{case}': 'reads classes from a response whose outputs are in shared memory'
                          for case in ('class_fff', 'class_ffi', 'class_fii', 'class_fil', 'class_fll', 'class_iif',
                                       'class_iii', 'mix_ffi', 'mix_iif', 'mix_iii')},
}

SUITES = [
    Run('L0_infer', 'infer_test.py', infer_models, SERVE, env=ONNX),
    Run('L0_infer', 'infer_test.py', infer_models, [*SERVE, '--allow-client-shm=true'], label='shm', env={**ONNX, **SHARED}),
    Run('L0_infer_zero', 'infer_zero_test.py', lambda place: with_ensembles(place, 'qa_identity_model_repository'), SERVE,
        env=ONNX),
    *[run for suite, file, models in [
        ('L0_infer_reshape', 'infer_reshape_test.py', reshape_models),
        ('L0_infer_variable', 'infer_variable_test.py', variable_models),
    ] for run in [
        Run(suite, file, models, SERVE, env=ONNX),
        Run(suite, file, models, [*SERVE, '--allow-client-shm=true'], label='shm', env={**ONNX, **SHARED}, restart=True,
            not_run=NOT_SHARED.get(suite, {})),
    ]],
    Run('L0_scalar_io', 'scalar_test.py', scalar_models, SERVE),
    Run('L0_string_io', 'string_client_test.py', string_models, SERVE),
    Run('L0_large_payload', 'large_payload_test.py', large_models, [*SERVE, f'--http-max-input-size={2**31}'],
        cases=['LargePayLoadTest.test_onnx']),  # the script is older than the limit of 64 MiB
    NotRun('L0_large_payload', 3, 'models of LibTorch, TensorRT and Python'),
    Programs('L0_custom_ops', custom_op_models, [*SERVE, '--strict-model-config=false'],
             ['onnx_op_test.py -m custom_op', 'onnx_op_test.py -m custom_op -i grpc -u localhost:8001']),
    NotRun('L0_custom_ops', 2, 'mod_op_test.py and vision_op_test.py: operators of LibTorch'),
    Programs('L0_nullchar_string', null_models, SERVE,
             ['nullchar_string_client.py -m python_string', 'nullchar_string_client.py -m python_string -i grpc -u localhost:8001']),
]
