"""What the suites are written in: a run of cases against one server, and the model repositories that it serves."""
import dataclasses
import pathlib
import re
import shutil
from collections.abc import Callable

CLIENT_EXAMPLES = 'client examples'


class Place:
    """Where a suite runs: a copy of its folder of the checkout, beside links to the folders that it refers to."""

    def __init__(self, server, client, data, root, suite):
        self.server, self.client, self.data = server, client, data
        self.qa = server / 'qa'
        self.examples = server / 'docs' / 'examples' / 'model_repository'
        root.mkdir(parents=True, exist_ok=True)
        for name in ('common', 'python_models', 'custom_models', 'ensemble_models', 'images'):
            link = root / name
            if not link.is_symlink():
                link.symlink_to(self.qa / name)
        self.dir = root / suite
        shutil.rmtree(self.dir, ignore_errors=True)
        examples = client / 'src' / 'python' / 'examples'
        shutil.copytree(examples if suite == CLIENT_EXAMPLES else self.qa / suite, self.dir)

    def repository(self, name='models', keep=False):
        """A model repository in the folder of the suite, empty unless `keep`."""
        folder = self.dir / name
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        return Repository(self, folder)


class Repository:
    """A model repository that a suite puts together of models of the checkout and of the generators."""

    def __init__(self, place, folder):
        self.place, self.folder = place, folder

    def add(self, source, name=None, version_dir=False):
        """Copies the model in `source`, under another name if one is given. The config.pbtxt runs on the CPU."""
        source = pathlib.Path(source)
        target = self.folder / (name or source.name)
        shutil.copytree(source, target, symlinks=False)
        config = target / 'config.pbtxt'
        if config.is_file():
            self.edit(target.name, 'KIND_GPU', 'KIND_CPU')
            if name is not None and name != source.name:
                self.edit(name, r'(?m)^name:.*$', f'name: "{name}"')
        if version_dir:
            (target / '1').mkdir(exist_ok=True)
        return target

    def add_all(self, repository, pattern='*'):
        """Copies the models of a made repository whose names match."""
        for source in sorted((self.place.data / repository).glob(pattern)):
            self.add(source, version_dir=source.name.startswith('nop_'))

    def edit(self, name, pattern, replacement, count=0):
        """Replaces in a model's config.pbtxt."""
        path = self.folder / name / 'config.pbtxt'
        path.write_text(re.sub(pattern, replacement, path.read_text(), count=count))

    def append(self, name, text):
        """Adds fields to a model's config.pbtxt."""
        with (self.folder / name / 'config.pbtxt').open('a') as config:
            config.write(f'\n{text}\n')

    def write(self, name, text):
        """A model of a config.pbtxt and an empty version directory."""
        (self.folder / name / '1').mkdir(parents=True)
        (self.folder / name / 'config.pbtxt').write_text(f'name: "{name}"\n{text}\n')


@dataclasses.dataclass
class Run:
    """Cases of one file against one server. `models` makes the repositories, in the folder of the suite, which the
    arguments refer to. `cases` are all of the file if None; those of `not_run` are left out, with a reason each."""
    suite: str
    file: str
    models: Callable[[Place], None]
    arguments: list
    label: str = ''
    cases: list | None = None
    not_run: dict = dataclasses.field(default_factory=dict)
    env: dict = dataclasses.field(default_factory=dict)
    restart: bool = False  # a new server for each case
    live: bool = False  # the server need not become ready
    attempts: int = 1  # of a case with times that depend on how busy the machine is: it passes if one of them does
    after_start: Callable[[Place], None] | None = None


@dataclasses.dataclass
class Programs:
    """Programs against one server, that pass by their exit code. `commands` are files of the folder with arguments."""
    suite: str
    models: Callable[[Place], None]
    arguments: list
    commands: list
    restart: bool = False  # a new server for each command


@dataclasses.dataclass
class NotRun:
    """Cases that are not run at all."""
    suite: str
    cases: int
    reason: str
