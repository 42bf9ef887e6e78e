"""What several suites share: model repositories, and reasons for what is not run."""
import shutil

import onnx

SERVE = ['--model-repository=models']

DELAY_HOOK = "needs TRITONSERVER_DELAY_SCHEDULER, a hook in Triton's scheduler by which it waits for requests"
CUSTOM = "needs a backend that Triton's build makes for its tests"
GPU = 'needs a GPU'
SHARED = {'TEST_SYSTEM_SHARED_MEMORY': '1'}


def with_ensembles(place, name, others=()):
    """The ONNX models of a made repository and the ensembles of them, and of other frameworks that have stand-ins."""
    models = place.repository()
    models.add_all(name, 'onnx_*')
    for path in models.folder.glob('*bf16*'):  # ONNX Runtime adds no BF16 on a CPU
        shutil.rmtree(path)
    for source in sorted((place.data / 'qa_ensemble_model_repository' / name).iterdir()):
        known = all(framework in others or f'{framework}_' not in source.name for framework in ('libtorch', 'plan'))
        if known and 'bf16' not in source.name:
            models.add(source, version_dir=source.name.startswith('nop_'))
    return models


def made(place, name, source='qa_model_repository'):
    return place.data / source / name


def stand_in(models, framework, types, source='qa_model_repository', libtorch_outputs=False):
    """An ONNX model under the name that the tests have for a model of another framework. Most tests ask the server for the
    platform, and name the outputs accordingly; some go by the name."""
    name = f'{framework}_{types}'
    models.add(made(models.place, f'onnx_{types}', source), name)
    if framework != 'libtorch' or not libtorch_outputs:
        return
    models.edit(name, r'"OUTPUT(\d)"', r'"OUTPUT__\1"')
    for path in (models.folder / name).glob('*/model.onnx'):
        model = onnx.load(path)
        for tensor in model.graph.output:
            rename(model.graph, tensor, f'{tensor.name[:-1]}__{tensor.name[-1]}')
        onnx.save(model, path)


def rename(graph, tensor, name):
    """Gives an input or output another name, also where nodes refer to it."""
    for node in graph.node:
        for tensors in (node.input, node.output):
            for i, used in enumerate(tensors):
                if used == tensor.name:
                    tensors[i] = name
    tensor.name = name


def simple_identity(models):
    """The example of this name is in Python; the identity backend does the same."""
    in_place_of_python(models, models.place.examples / 'simple_identity')


def in_place_of_python(models, source, name=None):
    """A model in Python that answers with its inputs, run by the identity backend."""
    folder = models.add(source, name, version_dir=True)
    for path in folder.rglob('*.py'):
        path.unlink()
    models.edit(folder.name, '"python"', '"identity"')


def in_python(models, source, name=None, lines=()):
    """A model in Python as it is in the checkout, with further lines in its class."""
    folder = models.add(source, name)
    program = folder / 'model.py'
    if program.is_file():
        (folder / '1').mkdir(exist_ok=True)
        program = program.rename(folder / '1' / 'model.py')
        with program.open('a') as out:
            out.writelines(f'    {line}\n' for line in lines)
    return folder


def example_models(place):
    models = place.repository()
    for name in ('simple', 'simple_int8', 'simple_string', 'simple_sequence', 'simple_dyna_sequence'):
        models.add(place.examples / name)
    simple_identity(models)
    return models


def custom_zero(models, batch=None):
    """Triton's model custom_zero_1_float32, of the identity backend, with tensors of any length."""
    models.add(models.place.qa / 'custom_models' / 'custom_zero_1_float32', version_dir=True)
    models.edit('custom_zero_1_float32', r'dims: \[ 1 \]', 'dims: [ -1 ]')
    if batch is not None:
        models.edit('custom_zero_1_float32', r'(?m)^max_batch_size:.*$', f'max_batch_size: {batch}')


def delay(models, name, ms):
    models.append(name, f'parameters [ {{ key: "execute_delay_ms" value: {{ string_value: "{ms}" }} }} ]')
