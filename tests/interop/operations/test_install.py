"""`make install`, without the make: what lies under another prefix works from there, and holds all that
the author of a backend needs, and the author of a program with libsluice."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from lib import http1, server

pytestmark = pytest.mark.programs

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The prefix, moved once more after installing: nothing may depend on where it was."""
    stage = tmp_path_factory.mktemp("stage")
    subprocess.run(["cmake", "--install", server.build(), "--prefix", "/opt/sluice"], check=True,
                   stdout=subprocess.DEVNULL, env=os.environ | {"DESTDIR": str(stage)})
    prefix = stage / "moved"
    shutil.move(stage / "opt" / "sluice", prefix)
    return prefix


def check(installed, *args):
    """Returns: what `sluice serve --check` printed."""
    done = subprocess.run([installed / "bin" / "sluice", "serve", "--check", *args], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=http1.PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert server.build() not in done.stderr, done.stderr
    return done.stdout


def test_install_serves_from_moved_prefix(installed, repositories):
    assert "onnx_add  ready" in check(installed, repositories("onnx-only"))
    assert "(backend identity)" in check(installed, repositories("default"))


def test_install_has_no_build_rpath(installed):
    for path in installed.rglob("*"):
        if path.is_file() and ".so" in path.suffixes or path.name == "sluice" and path.is_file():
            dynamic = subprocess.run(["readelf", "-d", path], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout
            for found in re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic):
                assert found.startswith("$ORIGIN"), (path, found)


def test_backend_builds_from_installed_header(installed, tmp_path):
    """With the command in the header, which is to say nothing but the compiler."""
    header = (installed / "include" / "sluice" / "backend.h").read_text()
    command = re.search(r"^ \*     (cc .*)$", header, re.MULTILINE)[1]
    command = command.replace("PREFIX", str(installed)).replace("libsluice_my.so",
                                                                "libsluice_gate.so")
    command = command.replace("my.c", os.path.join(server.ROOT, "tests", "lib", "gate_backend.c"))
    subprocess.run(command.split() + ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"], check=True,
                   cwd=tmp_path)
    (tmp_path / "models" / "gated" / "1").mkdir(parents=True)
    (tmp_path / "models" / "gated" / "config.pbtxt").write_text(
        'backend: "gate" input { name: "IN" data_type: TYPE_FP32 dims: 1 }'
        ' output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
        f' parameters {{ key: "gate" value {{ string_value: "{tmp_path}" }} }}')
    assert "gated  ready" in check(installed, "--backend-dir", tmp_path, tmp_path / "models")


def test_default_build_has_no_test_programs():
    steps = subprocess.run(["ninja", "-C", server.build(), "-t", "commands", "all"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    assert "src/program/main.c" in steps
    assert not re.findall(r"\S+_test\.c\b|\S*examples/client/\w+\.c\b", steps)


# ---- a backend outside the tree ------------------------------------------------------------------

BACKEND = os.path.join(server.ROOT, "examples", "backend")


def by_hand(installed, folder, compiler):
    """The command of the page, and of the file's first lines."""
    command = re.search(r"^cc .*$", read("examples", "backend", "README.md"), re.MULTILINE)[0]
    assert command in read("examples", "backend", "scale.c")
    build_as_told(command, installed, folder, compiler)
    return folder


def by_cmake(installed, folder, compiler):
    subprocess.run(["cmake", "-S", folder, "-B", folder / "build",
                    f"-DCMAKE_PREFIX_PATH={installed}", f"-DCMAKE_C_COMPILER={compiler[0]}",
                    f"-DCMAKE_C_FLAGS={' '.join(compiler[1:] + WARNINGS)}"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder / "build"], check=True, stdout=subprocess.DEVNULL)
    return folder / "build"


@pytest.fixture(params=[(how, compiler) for how in (by_hand, by_cmake)
                        for compiler in ("gcc", "clang")],
                ids=lambda param: f"{param[0].__name__}-{param[1]}")
def scale(request, installed, tmp_path):
    """The example, copied out of the tree and built against nothing but what was installed. Returns: its
    folder, and the one with the library. (It has no sanitizer, also where the server has one.)"""
    how, compiler = request.param
    folder = tmp_path / "scale"
    shutil.copytree(BACKEND, folder)
    return folder, how(installed, folder, [compiler])


def test_external_backend_serves(installed, scale, start_server, monkeypatch):
    folder, library = scale
    assert not [name for name in needed(library / "libsluice_scale.so") if "sluice" in name]
    monkeypatch.setenv("SLUICE_BUILD", str(installed / "bin"))
    live = start_server("--backend-dir", library, folder / "models", grpc=("127.0.0.1:0",))
    told = re.search(r"^sluice (infer) \S+ (fahrenheit) (--input) (\S+)$",
                     read("examples", "backend", "README.md"), re.MULTILINE).groups()
    for url in (f"http://{live.address}", f"grpc://{live.grpc_address}"):
        done = subprocess.run([installed / "bin" / "sluice", told[0], url, *told[1:]], check=True,
                              stdout=subprocess.PIPE, timeout=http1.PATIENCE)
        assert json.loads(done.stdout)["outputs"][0]["data"] == [[32, 212]]


def test_external_backend_passes_conformance(scale):
    suite = os.path.join(server.build(), "unit", "backend", "conformance")
    done = subprocess.run([suite, "scale", scale[1]], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=http1.PATIENCE, check=False)
    assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout
    assert done.stdout.count("       OK ]") >= 15, done.stdout


def test_external_backend_error_names_parameter(installed, scale):
    """With a sentence that says which parameter, and what was expected."""
    folder, library = scale
    config = folder / "models" / "fahrenheit" / "config.pbtxt"
    config.write_text(config.read_text().replace('"1.8"', '"much"'))
    done = subprocess.run([installed / "bin" / "sluice", "serve", "--check", "--backend-dir", library,
                           folder / "models"], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=http1.PATIENCE, check=False)
    assert done.returncode == 1
    assert 'parameter scale: expected a number, got "much"' in done.stdout, done.stdout


def test_backend_folder_is_in_pkg_config(installed):
    """pkg-config and CMake name the folder in which the server looks."""
    told = pkg_config(installed, "--variable=backenddir", package="sluice-backend")[0]
    assert os.path.realpath(told) == os.path.realpath(libdir(installed) / "sluice" / "backends")
    assert os.path.exists(os.path.join(told, "libsluice_identity.so"))
    assert pkg_config(installed, "--libs", package="sluice-backend") == []


def test_openvino_libraries_are_installed(installed, tmp_path):
    """Its libraries are found where they were put, and no readers of other formats are among them."""
    folder = libdir(installed) / "sluice" / "backends" / "openvino"
    names = {path.name.split(".")[0] for path in folder.iterdir()}
    assert names == {"libopenvino_c", "libopenvino", "libopenvino_onnx_frontend", "libtbb",
                     "libopenvino_ir_frontend", "libopenvino_intel_cpu_plugin"}
    make = os.path.join(server.ROOT, "tests", "models", "make.py")
    subprocess.run([sys.executable, make, tmp_path / "made"], check=True)
    shutil.move(tmp_path / "made" / "mlp", tmp_path / "mlp")
    (tmp_path / "mlp" / "config.pbtxt").write_text('backend: "openvino"')
    assert "openvino (backend openvino)" in check(installed, tmp_path / "mlp")


def test_public_headers_are_installed(installed):
    here = {path.name for path in (installed / "include" / "sluice").iterdir()}
    assert here == set(os.listdir(os.path.join(server.ROOT, "include", "sluice")))


# ---- libsluice -----------------------------------------------------------------------------------

OUTSIDE = os.path.join(HERE, "outside_client.c")
SAID = "waiting: 1.5 -2 3.25\nstepping: 1.5 -2 3.25\n"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def cached(name):
    """What the build under test was configured with."""
    with open(os.path.join(server.build(), "CMakeCache.txt"), encoding="utf-8") as cache:
        return re.search(rf"^{name}:\w+=(.*)$", cache.read(), re.MULTILINE)[1]


def library_version():
    """Of libsluice: that of its header."""
    with open(os.path.join(server.ROOT, "include", "sluice", "client.h"), encoding="utf-8") as header:
        return ".".join(re.findall(r"^#define SLUICE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header.read(), re.MULTILINE))


def compilers():
    """(for C, for C++) pairs of commands. A library with a sanitizer in it wants programs with it."""
    clang = [["clang"], ["clang++"]]
    if server.is_sanitized():
        sanitizers = f"-fsanitize={cached('SLUICE_SANITIZE')}"
        return [[[*command, sanitizers] for command in clang]]
    return [[["gcc"], ["g++"]], clang]


def libdir(prefix):
    """Where the libraries are: lib/, or what the build under test was told last."""
    return prefix / cached("CMAKE_INSTALL_LIBDIR")


def pkg_config(prefix, *args, package="sluice"):
    """Asks for PACKAGE.pc of that prefix, and only there. Returns: its words."""
    env = os.environ | {"PKG_CONFIG_LIBDIR": str(libdir(prefix) / "pkgconfig")}
    return subprocess.run(["pkg-config", *args, package], check=True, text=True, env=env,
                          stdout=subprocess.PIPE).stdout.split()


def run_outside(program, address, **env):
    done = subprocess.run([program, f"http://{address}", "id_fp32", "INPUT0"], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=http1.PATIENCE, env=os.environ | env, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID, "")


def needed(path):
    """The shared libraries that a binary asks for."""
    dynamic = subprocess.run(["readelf", "-d", path], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def each_language(tmp_path):
    """Yields: (compiler with its language and warnings, source)."""
    source = tmp_path / "outside_client.cc"
    shutil.copy(OUTSIDE, source)
    for c, cxx in compilers():
        yield [*c, "-std=c11", *WARNINGS], OUTSIDE
        yield [*cxx, "-std=c++17", *WARNINGS], source


def test_client_program_with_pkg_config(installed, client_server, tmp_path):
    """The loader is told where libsluice.so is, and by it where the rest is."""
    flags = pkg_config(installed, "--cflags", "--libs")
    for compiler, source in each_language(tmp_path):
        subprocess.run([*compiler, source, "-o", tmp_path / "shared", *flags], check=True)
        assert "libsluice.so.1" in needed(tmp_path / "shared")
        run_outside(tmp_path / "shared", client_server.address,
                    LD_LIBRARY_PATH=str(libdir(installed)))


def test_client_program_static_with_pkg_config(installed, client_server, tmp_path):
    """Nobody is told anything: what libsluice.a needs is the system's, or found where it was put."""
    flags = pkg_config(installed, "--cflags") + pkg_config(installed, "--variable=static")
    for compiler, source in each_language(tmp_path):
        subprocess.run([*compiler, source, "-o", tmp_path / "static", *flags], check=True)
        assert "libsluice.so.1" not in needed(tmp_path / "static")
        run_outside(tmp_path / "static", client_server.address)


def test_pkg_config_static_libraries(installed):
    assert pkg_config(installed, "--modversion") == [library_version()]
    private = set(pkg_config(installed, "--static", "--libs")) - set(pkg_config(installed, "--libs"))
    assert {"-lllhttp", "-lnghttp2", "-lyyjson", "-lz"} <= private
    assert all(word.startswith(("-l", "-L", "-Wl,-rpath,")) for word in private), private


PROJECT = """
cmake_minimum_required(VERSION 3.13)
project(outside LANGUAGES C CXX)
find_package(Sluice @WANTED@ REQUIRED)
add_executable(shared outside_client.c)
target_link_libraries(shared PRIVATE Sluice::sluice)
add_executable(static outside_client.cc)
target_link_libraries(static PRIVATE Sluice::sluice_static)
set_target_properties(shared static PROPERTIES C_STANDARD 11 CXX_STANDARD 17)
"""


def configure(installed, folder, compilers, wanted):
    """Returns: cmake's run, which may have failed."""
    (folder / "CMakeLists.txt").write_text(PROJECT.replace("@WANTED@", wanted))
    c, cxx = compilers
    return subprocess.run(
        ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build",
         f"-DCMAKE_PREFIX_PATH={installed}", f"-DCMAKE_C_COMPILER={c[0]}",
         f"-DCMAKE_CXX_COMPILER={cxx[0]}", f"-DCMAKE_C_FLAGS={' '.join(c[1:] + WARNINGS)}",
         f"-DCMAKE_CXX_FLAGS={' '.join(cxx[1:] + WARNINGS)}"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def test_client_program_with_cmake(installed, client_server, tmp_path):
    for number, pair in enumerate(compilers()):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copy(OUTSIDE, folder / "outside_client.c")
        shutil.copy(OUTSIDE, folder / "outside_client.cc")
        done = configure(installed, folder, pair,
                         library_version() + " COMPONENTS shared static backend")
        assert done.returncode == 0, done.stdout
        subprocess.run(["cmake", "--build", folder / "build"], check=True)
        assert "libsluice.so.1" in needed(folder / "build" / "shared")
        assert "libsluice.so.1" not in needed(folder / "build" / "static")
        for program in ("shared", "static"):
            run_outside(folder / "build" / program, client_server.address)


def test_cmake_other_version_is_refused(installed, tmp_path):
    done = configure(installed, tmp_path, compilers()[0], "99")
    assert done.returncode != 0
    assert re.search(r"requested\s+version \"99\"", done.stdout), done.stdout


def test_cmake_unknown_component_is_refused(installed, tmp_path):
    done = configure(installed, tmp_path, compilers()[0], "COMPONENTS shared grpc")
    assert done.returncode != 0
    assert re.search(r"the\s+component\s+grpc\s+is\s+not\s+installed", done.stdout), done.stdout


@pytest.mark.parametrize("libdir, includedir", [
    ("lib", "include"), ("lib64", "include/deeper"), ("lib/x86_64-linux-gnu", "include"),
    ("/elsewhere/lib", "include")])
def test_install_folders_are_configurable(tmp_path, libdir, includedir):
    """What is written for pkg-config and CMake leads from their place to the header's."""
    subprocess.run(["cmake", "-G", "Ninja", "-S", server.ROOT, "-B", tmp_path,
                    "-DCMAKE_INSTALL_PREFIX=/opt/sluice", f"-DCMAKE_INSTALL_LIBDIR={libdir}",
                    f"-DCMAKE_INSTALL_INCLUDEDIR={includedir}", "-DSLUICE_TESTS=OFF"],
                   check=True, stdout=subprocess.DEVNULL)
    pkgconfig = os.path.join("/opt/sluice", libdir, "pkgconfig")
    package = os.path.join("/opt/sluice", libdir, "cmake", "Sluice")
    header = os.path.join("/opt/sluice", includedir)
    pc = (tmp_path / "lib" / "sluice.pc").read_text()
    there = re.search(r"^includedir=\${pcfiledir}/(.*)$", pc, re.MULTILINE)[1]
    assert os.path.normpath(os.path.join(pkgconfig, there)) == header
    config = (tmp_path / "lib" / "SluiceConfig.cmake").read_text()
    there = re.search(r"_include\s+\"\${CMAKE_CURRENT_LIST_DIR}/(.*)\" ABSOLUTE", config)[1]
    assert os.path.normpath(os.path.join(package, there)) == header
    backend = (tmp_path / "lib" / "sluice-backend.pc").read_text()
    there = re.search(r"^includedir=\${pcfiledir}/(.*)$", backend, re.MULTILINE)[1]
    assert os.path.normpath(os.path.join(pkgconfig, there)) == header
    for text in (pc, config, backend):
        assert server.ROOT not in text and str(tmp_path) not in text


# ---- what the pages say --------------------------------------------------------------------------

EXAMPLES = os.path.join(server.ROOT, "examples", "client")


def build_as_told(command, installed, folder, compiler=None):
    """Runs a page's `cc …` in a shell, with the compiler and the prefix of this test."""
    compiler = compiler or compilers()[0][0]
    env = os.environ | {"PKG_CONFIG_PATH": str(libdir(installed) / "pkgconfig")}
    subprocess.run(["sh", "-ec", " ".join([*compiler, *WARNINGS, command.removeprefix("cc ")])],
                   check=True, cwd=folder, env=env)


def read(*path):
    with open(os.path.join(server.ROOT, *path), encoding="utf-8") as file:
        return file.read()


def test_docs_first_client_program_runs(installed, start_server, tmp_path):
    page = read("docs", "client.md")
    live = start_server("--model-repository", os.path.join(EXAMPLES, "models"))
    program = re.search(r"^```c\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    assert len(program[program.index("int main"):].splitlines()) <= 15
    (tmp_path / "first.c").write_text(program.replace("http://127.0.0.1:8000",
                                                      f"http://{live.address}"))
    command = re.search(r"^(cc first\.c .*) && \./first$", page, re.MULTILINE)[1]
    build_as_told(command, installed, tmp_path)

    def run():
        done = subprocess.run([tmp_path / "first"], text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=os.environ | {"LD_LIBRARY_PATH": str(libdir(installed))}, timeout=http1.PATIENCE)
        return done.returncode, done.stdout, live.address in done.stderr
    assert run() == (0, "1 2 3\n", False)
    live.stop()
    assert run() == (1, "", True)


def test_example_build_commands_work(installed, tmp_path):
    folder = tmp_path / "client"
    shutil.copytree(EXAMPLES, folder)
    told = re.findall(r"^cc .*$", read("examples", "client", "README.md"), re.MULTILINE)
    says = {re.search(r"^ \*     (cc .*?)(?: \*/)?$", path.read_text(), re.MULTILINE)[1]
            for path in folder.glob("*.c")}
    assert set(told) == says and len(told) == len(says)
    for command in told:
        build_as_told(command, installed, folder)
