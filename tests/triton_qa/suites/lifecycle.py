"""L0_lifecycle: load, unload, reload, versions, overrides, shutdown. Models of other frameworks have ONNX stand-ins."""
import shutil

from plan import NotRun, Run
from suites.common import CUSTOM, GPU, custom_zero, delay, in_python, made, stand_in

FILE = 'lifecycle_test.py'
FLOATS, INTS = 'float32_float32_float32', 'int32_int32_int32'
ONE, BOTH = ['--model-repository=models'], ['--model-repository=models', '--model-repository=models_0']
STAY, QUICK, EXPLICIT = '--exit-on-error=false', '--exit-timeout-secs=5', '--model-control-mode=explicit'
POLL = ['--repository-poll-secs=1', '--model-control-mode=poll', QUICK]
NO_STRICT, ANY_READY = '--strict-model-config=false', '--strict-readiness=false'


def lifecycle(cases, models, arguments, label='', live=False, **env):
    return Run('L0_lifecycle', FILE, models, arguments, label=label, live=live, restart=True, attempts=2, env=env,
               cases=[f'LifeCycleTest.test_{case}' for case in cases.split()])


def stand_ins(models, frameworks, types=FLOATS):
    for framework in frameworks.split():
        stand_in(models, framework, types)


def two_repositories(frameworks, others, after=None):
    def models_of(place):
        models, rest = place.repository('models'), place.repository('models_0')
        stand_ins(models, frameworks)
        stand_ins(rest, others)
        if after is not None:
            after(place, models, rest)
    return models_of


def one_repository(frameworks, types=FLOATS, after=None):
    def models_of(place):
        models = place.repository('models')
        stand_ins(models, frameworks, types)
        if after is not None:
            after(place, models)
    return models_of


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def no_file(place, models, rest):
    empty(models.folder / f'libtorch_{FLOATS}' / '3')


def no_config(place, models, rest):
    (models.folder / f'openvino_{FLOATS}' / 'config.pbtxt').unlink()


def wrong_outputs(place):
    models, rest = place.repository('models'), place.repository('models_0')
    models.add(made(place, 'onnx_sequence_int32', 'qa_sequence_model_repository'))
    rest.add(made(place, f'onnx_{INTS}'))
    models.edit('onnx_sequence_int32', 'OUTPUT', '_OUTPUT')
    rest.edit(f'onnx_{INTS}', 'OUTPUT', '_OUTPUT')
    stand_ins(models, 'openvino libtorch')
    stand_ins(rest, 'onnx')


def no_versions(place, models):
    folder = models.folder / f'openvino_{FLOATS}'
    stand_ins(models, 'openvino')
    for version in ('1', '2', '3'):
        shutil.rmtree(folder / version)


def version_named(name):
    def after(place, models):
        folder = models.folder / f'libtorch_{FLOATS}'
        (folder / '3').rename(folder / name)
    return after


def beside(place, models, rest=None):
    """The model that the test copies into a repository lies in the folder of the suite."""
    shutil.rmtree(place.dir / f'libtorch_{FLOATS}', ignore_errors=True)
    aside = place.repository('aside')
    stand_ins(aside, 'libtorch')
    (aside.folder / f'libtorch_{FLOATS}').rename(place.dir / f'libtorch_{FLOATS}')


def beside_two(place, models, rest):
    beside(place, models)
    stand_ins(models, 'libtorch')
    shutil.rmtree(models.folder / f'libtorch_{FLOATS}' / '3')


def changed_configs(place, models):
    for framework in ('libtorch', 'plan'):
        folder = models.folder / f'{framework}_{FLOATS}'
        lines = (folder / 'config.pbtxt').read_text().splitlines()
        (place.dir / f'config.pbtxt.{framework}').write_text(
            '\n'.join(line for line in lines if not line.startswith('version_policy')))
        (place.dir / f'config.pbtxt.wrong.{framework}').write_text(
            '\n'.join(lines).replace('output0_labels', 'wrong_output0_labels'))
        (folder / 'wrong_output0_labels.txt').write_text(
            (folder / 'output0_labels.txt').read_text().replace('label', 'label9'))


def batch_one(models, *names):
    for name in names:
        models.edit(name, r'(?m)^max_batch_size:.*$', 'max_batch_size: 1')


def ensemble_of(models, framework):
    """The ensemble of a framework's model, made of that of ONNX."""
    name = f'simple_{framework}_{FLOATS}'
    models.add(made(models.place, f'simple_onnx_{FLOATS}', 'qa_ensemble_model_repository/qa_model_repository'), name)
    models.edit(name, f'"onnx_{FLOATS}"', f'"{framework}_{FLOATS}"')


def with_ensemble(place):
    models = place.repository('models')
    stand_ins(models, 'onnx')
    ensemble_of(models, 'onnx')
    batch_one(models, f'onnx_{FLOATS}', f'simple_onnx_{FLOATS}')


def without_files(place):
    models = place.repository('models')
    stand_ins(models, 'onnx')
    for version in ('1', '2', '3'):
        empty(models.folder / f'onnx_{FLOATS}' / version)
    batch_one(models, f'onnx_{FLOATS}')


def startup(place):
    models, rest = place.repository('models'), place.repository('models_0')
    stand_ins(models, 'plan onnx')
    for framework in ('plan', 'onnx'):
        ensemble_of(rest, framework)
        batch_one(models, f'{framework}_{FLOATS}')
        batch_one(rest, f'simple_{framework}_{FLOATS}')
    stand_ins(models, 'libtorch')
    stand_ins(rest, 'libtorch')


def index(place):
    models, rest = place.repository('models'), place.repository('models_0')
    stand_ins(models, 'plan libtorch onnx')
    for framework in ('plan', 'libtorch'):
        ensemble_of(rest, framework)
    stand_ins(rest, 'onnx')


def identity(versions, policy, after=''):
    """Models for reloads: `policy` is that of the first config.pbtxt, `after` what the test replaces it with."""
    def models_of(place):
        models = place.repository('models')
        folder = models.add(place.dir / 'identity_zero_1_int32', version_dir=True)
        plain = (folder / 'config.pbtxt').read_text()
        for version in versions:
            (folder / version).mkdir(exist_ok=True)
        if policy:
            models.append('identity_zero_1_int32', f'version_policy: {{ specific {{ versions: [{policy}] }}}}')
        if after == 'v2':
            (place.dir / 'config.pbtxt.v2').write_text(
                f'{plain}\nversion_policy: {{ specific {{ versions: [2] }}}}\n')
        if after == 'new':
            shutil.copy(folder / 'config.pbtxt', place.dir / 'config.pbtxt.new')
        if after == 'gpu':
            (place.dir / 'config.pbtxt.v2.gpu').write_text(
                f'{plain}\nversion_policy: {{ specific {{ versions: [2] }}}}\n'.replace('KIND_CPU', 'KIND_GPU'))
    return models_of


def some_files(*removed, whole=False):
    def after(place, models):
        for version in removed:
            folder = models.folder / f'onnx_{FLOATS}' / version
            shutil.rmtree(folder) if whole else empty(folder)
    return after


def slow(ensemble):
    def models_of(place):
        models = place.repository('models')
        custom_zero(models)
        models.edit('custom_zero_1_float32', r'dims: \[ -1 \]', 'dims: [ 1 ]')
        models.append('custom_zero_1_float32', 'dynamic_batching {}')
        delay(models, 'custom_zero_1_float32', 5000)
        if ensemble:
            models.add(place.dir / 'ensemble_zero_1_float32', version_dir=True)
    return models_of


def stress(place):
    models = place.repository('models')
    models.add(place.dir / 'identity_zero_1_int32', version_dir=True)
    models.edit('identity_zero_1_int32', 'string_value: "10"', 'string_value: "0"')


def slow_to_load(place):
    models = place.repository('models')
    models.add(place.dir / 'identity_zero_1_int32', version_dir=True)
    models.add(place.dir / 'ensemble_zero_1_float32', version_dir=True)
    custom_zero(models)
    models.append('custom_zero_1_float32', 'parameters [ { key: "creation_delay_sec" value: { string_value: "10" } } ]')


PYTHON_IDENTITY = 'identity_fp32'
SLOW_START = ('def initialize(self, args):', '    import time', '    time.sleep(10)')


def python_identity(models, name=PYTHON_IDENTITY, lines=()):
    in_python(models, models.place.qa / 'python_models' / PYTHON_IDENTITY, name, lines)


def one_python(lines):
    def models_of(place):
        python_identity(place.repository('models'), lines=lines)
    return models_of


def pairs_that_load_slowly(place):
    models = place.repository('models')
    for number in '12':
        models.add(place.dir / 'identity_zero_1_int32', f'identity_zero_1_int32_{number}', version_dir=True)
        python_identity(models, f'python_{PYTHON_IDENTITY}_{number}', SLOW_START)


def exchanged_while_it_loads(place):
    shutil.rmtree(place.dir / 'models_v1', ignore_errors=True)
    place.repository('models').add(place.dir / 'identity_zero_1_int32', 'identity_model', version_dir=True)
    python_identity(place.repository('models_v2'), 'identity_model')


def custom_config(there):
    def after(place, models):
        folder = models.folder / f'libtorch_{FLOATS}'
        (folder / 'configs').mkdir()
        text = (folder / 'config.pbtxt').read_text()
        lines = ['version_policy: { specific: { versions: [2] }}' if line.startswith('version_policy') else line
                 for line in text.splitlines()]
        target = folder / 'configs' / 'custom.pbtxt' if there else place.dir / 'config.pbtxt.custom.libtorch'
        target.write_text('\n'.join(lines))
    return after


LOADED = '--load-model=identity_zero_1_int32'
RELOADS = [
    lifecycle(f'model_availability_on_reload{case}', models, [*ONE, EXPLICIT, QUICK, NO_STRICT, LOADED, ANY_READY],
              label=protocol, **env)
    for case, models in (('', identity('1', '')), ('_2', identity('12', '1', 'v2')), ('_3', identity('12', '1', 'new')))
    for protocol, env in (('http', {}), ('grpc', {'TRITONSERVER_USE_GRPC': '1'}))]
STARTUP = [*BOTH, EXPLICIT, ANY_READY, NO_STRICT, STAY]

SUITES = [
    lifecycle('parse_error_modelfail', two_repositories('openvino libtorch', 'onnx plan', no_file), [*BOTH, STAY, QUICK],
              live=True),
    lifecycle('parse_error_modelfail_nostrict', two_repositories('openvino libtorch', 'onnx plan', no_file),
              [*BOTH, STAY, QUICK, ANY_READY], live=True),
    lifecycle('parse_error_no_model_config', two_repositories('openvino libtorch', 'onnx plan', no_config),
              [*BOTH, STAY, QUICK, '--strict-model-config=true'], live=True),
    lifecycle('init_error_modelfail', wrong_outputs, [*BOTH, STAY, QUICK], live=True),
    lifecycle('parse_error_model_no_version', one_repository('libtorch onnx plan', after=no_versions), [*ONE, STAY, QUICK],
              live=True),
    lifecycle('parse_ignore_zero_prefixed_version', one_repository('libtorch', after=version_named('003')),
              [*ONE, STAY, QUICK]),
    lifecycle('parse_ignore_non_intergral_version', one_repository('libtorch', after=version_named('abc')),
              [*ONE, STAY, QUICK]),
    lifecycle('dynamic_model_load_unload', one_repository('openvino onnx plan', after=beside), [*ONE, *POLL]),
    lifecycle('dynamic_model_load_unload_disabled', one_repository('openvino onnx plan', after=beside),
              [*ONE, '--model-control-mode=none', QUICK]),
    lifecycle('dynamic_version_load_unload', one_repository('libtorch', INTS), [*ONE, *POLL]),
    lifecycle('dynamic_version_load_unload_disabled', one_repository('libtorch', INTS),
              [*ONE, '--model-control-mode=none', QUICK]),
    lifecycle('dynamic_model_modify', one_repository('libtorch plan', after=changed_configs), [*ONE, *POLL]),
    lifecycle('dynamic_file_delete', one_repository('onnx plan'), [*ONE, *POLL, NO_STRICT]),
    lifecycle('multiple_model_repository_polling', two_repositories('openvino', 'onnx', beside_two), [*BOTH, *POLL]),
    lifecycle('multiple_model_repository_control', two_repositories('openvino', 'onnx', beside_two),
              [*BOTH, EXPLICIT, QUICK]),
    lifecycle('model_control model_control_ensemble', with_ensemble, [*ONE, EXPLICIT, QUICK, NO_STRICT, ANY_READY]),
    lifecycle('model_control_fail', without_files, [*ONE, EXPLICIT, QUICK, NO_STRICT, ANY_READY]),
    lifecycle('multiple_model_repository_control_startup_models', startup,
              [*STARTUP, f'--load-model=libtorch_{FLOATS}', f'--load-model=plan_{FLOATS}',
               f'--load-model=simple_onnx_{FLOATS}'], label='named', live=True),
    lifecycle('multiple_model_repository_control_startup_models', startup, [*STARTUP, '--load-model=*'], label='all',
              live=True),
    lifecycle('model_repository_index', index, [*STARTUP, f'--load-model=onnx_{FLOATS}', f'--load-model=plan_{FLOATS}',
                                                f'--load-model=simple_libtorch_{FLOATS}'], live=True),
    *RELOADS,
    lifecycle('model_reload_fail', identity('12', '1', 'gpu'), [*ONE, EXPLICIT, QUICK, NO_STRICT, LOADED, ANY_READY]),
    lifecycle('config_override', one_repository('onnx', after=some_files('1', '3')),
              ['--model-repository=models', *ONE, EXPLICIT, NO_STRICT]),
    lifecycle('file_override file_override_security', one_repository('onnx', after=some_files('1', whole=True)),
              [*ONE, EXPLICIT, f'--load-model=onnx_{FLOATS}', NO_STRICT]),
    lifecycle('shutdown_dynamic', slow(ensemble=False), ONE),
    lifecycle('shutdown_ensemble', slow(ensemble=True), ONE),
    lifecycle('concurrent_model_load_unload', slow_to_load, [*ONE, EXPLICIT]),
    lifecycle('concurrent_same_model_load_unload_stress', stress, [*ONE, EXPLICIT, '--model-load-thread-count=32']),
    lifecycle('add_custom_config', one_repository('libtorch', after=custom_config(False)),
              [*ONE, *POLL, '--model-config-name=custom']),
    lifecycle('delete_custom_config', one_repository('libtorch', after=custom_config(True)),
              [*ONE, *POLL, '--model-config-name=custom']),
    NotRun('L0_lifecycle', 4, 'test_parse_error_noexit, of a server without a model repository: Triton serves none, here '
                              'the start fails'),
    lifecycle('concurrent_model_load_speedup', pairs_that_load_slowly, [*ONE, EXPLICIT]),
    lifecycle('concurrent_model_load', exchanged_while_it_loads, [*ONE, EXPLICIT]),
    lifecycle('shutdown_while_background_unloading',
              one_python(('def finalize(self):', '    import time', '    time.sleep(10)')),
              [*ONE, EXPLICIT, f'--load-model={PYTHON_IDENTITY}']),
    lifecycle('shutdown_while_loading', one_python(SLOW_START), [*ONE, EXPLICIT]),
    NotRun('L0_lifecycle', 3, 'test_concurrent_model_instance_load_…, test_model_config_overwite: load a model in Python with a '
                              'configuration of the request, which is refused: programs do not come with requests'),
    NotRun('L0_lifecycle', 2, "test_shutdown_with_live_connection, test_load_new_model_version: compare with lines of Triton's log"),
    NotRun('L0_lifecycle', 1, f'test_shutdown_sequence: {CUSTOM}'),
    NotRun('L0_lifecycle', 1, f'test_load_gpu_limit: {GPU}'),
    NotRun('L0_lifecycle', 4, 'test_load_same_model_different_platform: models of TensorRT and LibTorch'),
]
