"""The list of modules, cmake/modules.txt, as tools/check-layers, tools/check and tools/draw-modules read it."""
import sys

LIST = "cmake/modules.txt"


class Module:
    """A line of the list: what it names itself, and (`sees`) all modules that it sees."""

    def __init__(self, name, deps, libraries, for_tests):
        self.name, self.deps, self.libraries, self.for_tests = name, deps, libraries, for_tests
        self.sees = set()


def read_modules(path):
    """Returns: name -> Module. A module may name only modules above it in the list, so there is no cycle."""
    modules = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            name, colon, rest = line.partition(":")
            columns = [column.split() for column in rest.split("|")] + [[], []]
            if not colon or name in modules:
                sys.exit(f"{path}:{number}: expected a new MODULE: MODULES | LIBRARIES | FOR TESTS")
            module = modules[name] = Module(name, *columns[:3])
            for dep in module.deps:
                if dep not in modules or dep == name:
                    sys.exit(f"{path}:{number}: {dep} is no module above this line")
                module.sees |= {dep} | modules[dep].sees
    return modules


def module_of(modules, path):
    """The innermost module that holds `path`, which begins with a module's name; None."""
    return max((name for name in modules if path.startswith(name + "/")), key=len, default=None)
