"""Runs test cases of one file of Triton's tests and writes what became of each: cases.py FILE REPORT [CASE...]

The files are written to be started as programs, with imports relative to the working directory; they are imported here so
that each case is reported by itself. A line of the report is a JSON object: {"started": CASE}, or {"case": CASE,
"outcome": "passed", "failed" or "skipped", "text": the end of the traceback}. Without cases: {"listed": CASE} for each that
the file has, and none is run."""
import atexit
import importlib.util
import json
import pathlib
import sys
import unittest

import tritonclient.utils.shared_memory

TEXT_BYTES = 2000


def own_regions():
    """Lets a test begin with new shared memory objects, whatever a run that was killed has left under their keys, and
    removes them at the end."""
    create = tritonclient.utils.shared_memory.create_shared_memory_region
    made = set()

    def create_new(name, key, *args, **kwargs):
        path = pathlib.Path('/dev/shm') / key.lstrip('/')
        if path not in made:
            path.unlink(missing_ok=True)
            made.add(path)
        return create(name, key, *args, **kwargs)

    def remove():
        for path in made:
            path.unlink(missing_ok=True)

    tritonclient.utils.shared_memory.create_shared_memory_region = create_new
    atexit.register(remove)


def name_of(test):
    """Class.method; an error of a class's set-up has the class alone."""
    return '.'.join(test.id().split('.')[-2:])


class Report(unittest.TestResult):
    """Writes each outcome when it is known. The first of a case counts: a failure is not made good by what follows."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.current = None

    def line(self, **fields):
        self.out.write(json.dumps(fields) + '\n')
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.current = 'passed', ''
        self.line(started=name_of(test))

    def set(self, outcome, text):
        if self.current is None or self.current[0] == 'passed':
            self.current = outcome, text[-TEXT_BYTES:]

    def stopTest(self, test):
        super().stopTest(test)
        self.line(case=name_of(test), outcome=self.current[0], text=self.current[1])
        self.current = None

    def failed(self, test, err):
        text = self._exc_info_to_string(err, test)
        if self.current is None:  # the set-up of a class or of the module
            self.line(case=name_of(test), outcome='failed', text=text[-TEXT_BYTES:])
        else:
            self.set('failed', text)

    addError = failed
    addFailure = failed

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.set('failed', self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self.set('skipped', reason)

    def addUnexpectedSuccess(self, test):
        self.set('failed', 'a success where the test expects a failure')


def main():
    path, report, wanted = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    sys.argv = [str(path)]
    own_regions()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with open(report, 'w', encoding='utf-8') as out:
        result = Report(out)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # whatever a file raises when it is imported
            result.line(case=path.name, outcome='failed', text=f'{type(error).__name__}: {error}')
            return
        loader = unittest.TestLoader()
        if wanted:
            loader.loadTestsFromNames(wanted, module).run(result)
            return
        todo = [loader.loadTestsFromModule(module)]
        while todo:
            test = todo.pop()
            if isinstance(test, unittest.TestSuite):
                todo += list(test)[::-1]
            else:
                result.line(listed=name_of(test))


if __name__ == '__main__':
    main()
