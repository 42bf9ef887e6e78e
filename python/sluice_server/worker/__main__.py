"""``PYTHON worker/__main__.py FD``: FD is the socket to the server."""
import importlib.util
import os
import sys


def package():
    """This folder as a package of its own name: the interpreter need not have sluice_server, and nothing of it is on
    the path of the model's imports."""
    folder = os.path.dirname(os.path.abspath(__file__))
    name = "_sluice_worker"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "__init__.py"),
                                                  submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return name


def main():
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():  # the model's name is for lists of processes
        sys.exit("This program is started by `sluice serve` for models in Python.")
    if sys.version_info < (3, 9):
        sys.exit(f"models need Python 3.9 or later; {sys.executable} is {sys.version.split()[0]}")
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        sys.exit(f"{error}: models need numpy: {sys.executable} -m pip install numpy")
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == folder:
        del sys.path[0]  # its modules are no model's
    serve = importlib.import_module(package() + ".serve")
    serve.main(int(sys.argv[1]))


main()
