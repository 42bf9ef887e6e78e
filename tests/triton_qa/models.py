"""Makes the model repositories of Triton's tests with the generators of a checkout of its server repository, into a folder
that is kept between runs. Of the formats that the generators know ONNX and ensembles are made."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

import onnx

OPSET = '17'
# What ONNX Runtime reads; the onnx package writes its newest.
IR_VERSION = 10

# Repository, script, its arguments, made with the option of a format.
GENERATED = [
    ('qa_model_repository', 'gen_qa_models.py', []),
    ('qa_variable_model_repository', 'gen_qa_models.py', ['--variable']),
    ('qa_identity_model_repository', 'gen_qa_identity_models.py', []),
    ('qa_reshape_model_repository', 'gen_qa_reshape_models.py', ['--variable']),
    ('qa_sequence_model_repository', 'gen_qa_sequence_models.py', []),
    ('qa_variable_sequence_model_repository', 'gen_qa_sequence_models.py', ['--variable']),
    ('qa_sequence_initial_state_implicit_model_repository', 'gen_qa_implicit_models.py', ['--initial-state', 'zero']),
    ('qa_variable_sequence_initial_state_implicit_model_repository', 'gen_qa_implicit_models.py',
     ['--initial-state', 'zero', '--variable']),
    ('qa_sequence_implicit_model_repository', 'gen_qa_implicit_models.py', []),
    ('qa_variable_sequence_implicit_model_repository', 'gen_qa_implicit_models.py', ['--variable']),
    ('qa_dyna_sequence_model_repository', 'gen_qa_dyna_sequence_models.py', []),
    ('qa_dyna_sequence_implicit_model_repository', 'gen_qa_dyna_sequence_implicit_models.py', []),
    ('qa_ragged_model_repository', 'gen_qa_ragged_models.py', []),
    ('qa_scalar_models', 'gen_qa_ort_scalar_models.py', None),
]
ENSEMBLES = [
    ('qa_model_repository', 'gen_qa_models.py', []),
    ('qa_variable_model_repository', 'gen_qa_models.py', ['--variable']),
    ('qa_reshape_model_repository', 'gen_qa_reshape_models.py', []),
    ('qa_identity_model_repository', 'gen_qa_identity_models.py', []),
    ('qa_sequence_model_repository', 'gen_qa_sequence_models.py', []),
    ('qa_variable_sequence_model_repository', 'gen_qa_sequence_models.py', ['--variable']),
]


def jobs(data):
    """The command lines of the generators: (folder made, script, arguments)."""
    for name, script, arguments in GENERATED:
        formats = [] if arguments is None else ['--onnx', *arguments]
        yield data / name, script, [*formats, '--onnx_opset', OPSET]
    for name, script, arguments in ENSEMBLES:
        yield data / 'qa_ensemble_model_repository' / name, script, ['--ensemble', *arguments]


def generate(common, folder, script, arguments):
    """Runs one generator. A folder is renamed into its place when it is whole."""
    making = folder.with_name(folder.name + '.making')
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    done = subprocess.run([sys.executable, str(common / script), *arguments, f'--models_dir={making}'], cwd=making,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', check=False,
                          env={**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'})
    if done.returncode != 0:
        raise SystemExit(f'{script} {" ".join(arguments)}: exit code {done.returncode}\n{done.stdout[-3000:]}')
    for path in making.rglob('*.onnx'):
        model = onnx.load(path)
        model.ir_version = IR_VERSION
        onnx.save(model, path)
    for path in making.rglob('config.pbtxt'):
        on_cpu(path)
    making.rename(folder)


def on_cpu(path):
    """Replaces instances on a GPU in a config.pbtxt."""
    text = path.read_text()
    if 'KIND_GPU' in text:
        path.write_text(text.replace('KIND_GPU', 'KIND_CPU'))


def make_all(server, data):
    """Makes what is missing in `data`. `server` is the checkout."""
    common = server / 'qa' / 'common'
    missing = [job for job in jobs(data) if not job[0].is_dir()]
    if not missing:
        return
    print(f'triton-qa: making {len(missing)} model repositories in {data}', flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for made in [pool.submit(generate, common, *job) for job in missing]:
            made.result()


if __name__ == '__main__':
    make_all(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
