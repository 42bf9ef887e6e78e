"""What libsluice.so and libsluice.a show to the program they are in: the functions of the public headers
and no other name, seven libraries beside the C library's, and no state of their own."""
import os
import re
import subprocess

import pytest

from lib import server

pytestmark = pytest.mark.plain

HEADERS = [os.path.join(server.ROOT, "include", "sluice", name) for name in ("client.h", "client_mip.h")]

# What a guest in somebody's process leaves alone: threads and their locks, signals, the process's end,
# its environment and its streams.
NOT_OURS = re.compile(
    r"(pthread|thrd|mtx|sem)_\w+|call_once|signal|sig(action|procmask)|(_|quick_)?exit|at(_quick_)?exit"
    r"|v?fork|(set|put|unset)env|setlocale|v?f?printf|f?puts|f?putc|perror|std(in|out|err)|v?syslog")


def library(name):
    return os.path.join(server.build(), "lib", name)


def run(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def symbols(path, *options):
    """Names by nm, without versions."""
    lines = run("nm", "-P", *options, path).splitlines()
    return {line.split()[0].split("@")[0] for line in lines if len(line.split()) > 1}


def header_text():
    text = ""
    for header in HEADERS:
        with open(header, encoding="utf-8") as file:
            text += file.read()
    return text


def declared():
    """The functions of the header: all that its code, without comments, calls sluice_…( . Functions
    that are compiled into the caller are not in the library."""
    code = re.sub(r"/\*.*?\*/", "", header_text(), flags=re.DOTALL)
    code = re.sub(r"^static inline.*?^}|^#define.*?(?<!\\)$|^typedef void .*?;", "", code, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"\b(sluice_\w+)\s*\(", code))


def test_header_exports_each_declared_function():
    exported = re.findall(r"^SLUICE_CLIENT_API\s+[^;]*?(sluice_\w+)\(", header_text(), re.MULTILINE)
    assert set(exported) == declared()
    assert len(exported) == len(set(exported)) > 20


def test_shared_library_exports_only_header_functions():
    assert symbols(library("libsluice.so"), "-D", "--defined-only") - {"SLUICE_1"} == declared()


def test_static_library_exports_only_header_functions():
    assert symbols(library("libsluice.a"), "-g", "--defined-only") == declared()


def test_shared_library_soname_and_dependencies():
    dynamic = run("readelf", "-d", library("libsluice.so"))
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == ["libsluice.so.1"]
    if not server.is_sanitized():  # a sanitizer brings libraries of its own
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        # ld-linux: where the stack protector's value lives there (aarch64)
        names = {re.sub(r"\.so.*", "", name) for name in needed} - {"ld-linux-aarch64"}
        assert names == {"libc", "libcares", "libcrypto", "libllhttp", "libnghttp2", "libssl", "libyyjson", "libz"}


def test_library_has_no_global_state():
    """No thread, lock, signal or output of its own, and no state: nothing to write to but what it is
    given and what it allocates."""
    used = symbols(library("libsluice.a"), "-u")
    assert "sendmsg" in used
    assert not {name for name in used if NOT_OURS.fullmatch(name)}
    sections = dict(re.findall(r"^(\.t?(?:data|bss)[\w.]*)\s+(\d+)",
                               run("size", "-A", library("libsluice.a")), re.MULTILINE))
    assert ".data" in sections
    if not server.is_sanitized():  # a sanitizer keeps tables of its own
        assert {name for name, size in sections.items()
                if int(size) > 0 and not name.startswith(".data.rel.ro")} == set()
