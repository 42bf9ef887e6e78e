"""Packed environments of models in Python (EXECUTION_ENV_PATH of a .tar.gz and its kin): unpacked once, in a cache that
several servers share, and safe against what an archive can contain."""
import bz2
import contextlib
import io
import lzma
import os
import stat
import struct
import sys
import tarfile
import zipfile

import pytest

from lib import python_models
from lib.python_models import DOES, FLAGS, Client, parameter

PYTHON = f"#!/bin/sh\nOF_ENVIRONMENT=$(dirname \"$(dirname \"$0\")\") exec {sys.executable} \"$@\"\n"
# As conda-pack's: it finds its own prefix. Here it counts how often it runs, in a file beside the cache.
UNPACK = """
import os, sys, time
prefix = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with open(os.path.join(os.path.dirname(os.path.dirname(prefix)), "fixed"), "a") as file:
    file.write(prefix + "\\n")
"""


def entry(name, data=b"", mode=0o644, **members):
    info = tarfile.TarInfo(name)
    info.mode = mode
    info.mtime = 1_500_000_000
    info.size = len(data)
    for key, value in members.items():
        setattr(info, key, value)
    return info, data


def link(name, target, kind=tarfile.SYMTYPE):
    return entry(name, type=kind, linkname=target)


def pack(path, *entries, kind="w:gz", form=tarfile.PAX_FORMAT):
    with tarfile.open(path, kind, format=form) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return path


def zstd(data):
    """A frame of blocks that are not compressed."""
    blocks = [data[at:at + (1 << 17)] for at in range(0, len(data), 1 << 17)]
    return struct.pack("<IBI", 0xFD2FB528, 0xA0, len(data)) + b"".join(
        struct.pack("<I", (block is blocks[-1]) | len(block) << 3)[:3] + block for block in blocks)


def pack_zip(path, *entries):
    kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK, tarfile.REGTYPE: stat.S_IFREG}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in entries:
            one = zipfile.ZipInfo(info.name, (2017, 7, 14, 2, 40, 0))
            one.external_attr = (kinds[info.type] | info.mode) << 16
            archive.writestr(one, info.linkname if info.type == tarfile.SYMTYPE else data, zipfile.ZIP_DEFLATED)
    return path


WHOLE = (entry("./", type=tarfile.DIRTYPE, mode=0o755), entry("bin/python3", PYTHON.encode(), 0o755),
         link("bin/python", "python3"), entry("bin/conda-unpack", UNPACK.encode(), 0o755),
         entry("lib/" + "long/" * 40 + "name.py", b"X = 1\n"), link("lib/again.py", "long/" * 40 + "name.py"),
         link("lib/hard.py", "lib/" + "long/" * 40 + "name.py", tarfile.LNKTYPE), link("share/deep/up", "../../lib"),
         entry("lib/" + "n" * 180, b"long name"), entry("lib/größe.py", b"X = 2\n"), entry("setuid", b"", 0o6777))


@pytest.fixture
def running(start_server, tmp_path):
    """run(name=path of an archive, …): a server of models that have it."""
    def run(*flags, wait="ready", **models):
        folder = tmp_path / f"models{len(os.listdir(tmp_path))}"
        for name, path in models.items():
            python_models.write(folder, name, "does", DOES + parameter("EXECUTION_ENV_PATH", path))
        python_models.write(folder, "other", "does", DOES)
        return start_server("--model-repository", folder, "--backend-config", f"python,env_cache={tmp_path}/cache/all",
                            *FLAGS, *flags, wait=wait)
    return run


def environments(tmp_path):
    folder = tmp_path / "cache" / "all"
    return sorted(name for name in os.listdir(folder) if not name.endswith(".lock")) if folder.exists() else []


def fixed(tmp_path):
    return (tmp_path / "cache" / "fixed").read_text().split()


def uses(server, environment):
    """Whether the server has the environment's lock."""
    names = []
    for fd in os.listdir(f"/proc/{server.pid}/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile
            names.append(os.readlink(f"/proc/{server.pid}/fd/{fd}"))
    return any(environment in name for name in names)


def environment_of(server, model):
    with open(f"/proc/{Client(server).ask(model, 'pid')}/environ", "rb") as file:
        found = [line for line in file.read().split(b"\0") if line.startswith(b"OF_ENVIRONMENT=")]
    return found[0].decode().partition("=")[2]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_environment_is_unpacked_once(running, tmp_path, form):
    path = pack(tmp_path / "env.tar.gz", *WHOLE, form=form)
    first = running(one=path, two=path)
    second = running(three=path)
    (name,) = environments(tmp_path)
    top = tmp_path / "cache" / "all" / name
    assert {environment_of(first, "one"), environment_of(first, "two"), environment_of(second, "three")} == {str(top)}
    assert f"runs with {top}/bin/python3 (parameter EXECUTION_ENV_PATH)" in first.log_text()
    assert fixed(tmp_path) == [str(top)]
    deep = top / "lib" / ("long/" * 40) / "name.py"
    assert deep.read_text() == "X = 1\n" and deep.stat().st_mtime == 1_500_000_000
    assert os.path.samefile(top / "lib" / "hard.py", deep) and os.path.samefile(top / "lib" / "again.py", deep)
    assert os.path.samefile(top / "share" / "deep" / "up", top / "lib") and os.readlink(top / "bin" / "python") == "python3"
    assert (top / "lib" / ("n" * 180)).read_text() == "long name" and (top / "lib" / "größe.py").read_text() == "X = 2\n"
    assert stat.S_IMODE((top / "setuid").stat().st_mode) == 0o755


@pytest.mark.parametrize("ending", [".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".zip"])
def test_environment_in_each_format(running, tmp_path, ending):
    path = tmp_path / f"env{ending}"
    if ending == ".zip":
        pack_zip(path, *(each for each in WHOLE if each[0].type != tarfile.LNKTYPE and each[0].name != "./"))
    else:
        pack(path, *WHOLE, kind="w:gz" if ending == ".tgz" else "w")
        compress = {"z2": bz2.compress, "xz": lzma.compress, "st": zstd}.get(ending[-2:], bytes)
        path.write_bytes(compress(path.read_bytes()))
    server = running(one=path)
    top = tmp_path / "cache" / "all" / environments(tmp_path)[0]
    assert environment_of(server, "one") == str(top) and fixed(tmp_path) == [str(top)]
    assert os.path.samefile(top / "share" / "deep" / "up", top / "lib") and os.readlink(top / "bin" / "python") == "python3"
    assert (top / "lib" / ("long/" * 40) / "name.py").read_text() == "X = 1\n"
    assert stat.S_IMODE((top / "setuid").stat().st_mode) == 0o755


def test_environment_beside_the_model(start_server, tmp_path, monkeypatch):
    """In the cache of the user, and not compressed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    python_models.write(tmp_path / "models", "does", "does",
                        DOES + parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/env.tar"))
    pack(tmp_path / "models" / "does" / "env.tar", entry("bin/python3", PYTHON.encode(), 0o755), kind="w")
    server = start_server("--model-repository", tmp_path / "models", *FLAGS)
    assert environment_of(server, "does").startswith(str(tmp_path / "user" / "sluice" / "python-environments"))


def test_archive_that_changes_is_unpacked_again(running, tmp_path):
    path = pack(tmp_path / "env.tar.gz", *WHOLE)
    server = running("--model-control-mode", "explicit", "--load-model", "*", one=path)
    (before,) = environments(tmp_path)
    pack(path, *WHOLE, entry("more", b"1"))
    client = Client(server)
    again = running(two=path)  # while the first one is used
    assert len(environments(tmp_path)) == 2 and environment_of(server, "one").endswith(before)
    client.client.unload_model("one")
    server.wait_for(lambda: not uses(server, before), "an environment that is not used")
    client.client.load_model("one")
    (after,) = environments(tmp_path)
    assert after != before and os.path.exists(tmp_path / "cache" / "all" / after / "more")
    assert environment_of(server, "one") == environment_of(again, "two")


def test_environment_of_a_server_that_ended_meanwhile_is_made_again(running, tmp_path):
    path = pack(tmp_path / "env.tar.gz", *WHOLE)
    server = running(one=path)
    top = tmp_path / "cache" / "all" / environments(tmp_path)[0]
    server.stop()
    os.unlink(top / ".sluice-complete")
    os.unlink(top / "bin" / "python3")
    (top / "rest").mkdir()
    server = running(one=path)
    assert environment_of(server, "one") == str(top) and not (top / "rest").exists() and len(fixed(tmp_path)) == 2


def test_two_servers_at_once_unpack_once(running, tmp_path):
    slow = UNPACK + "\nwhile not os.path.exists(os.path.join(os.path.dirname(prefix), 'go')): time.sleep(0.01)\n"
    path = pack(tmp_path / "env.tar.gz", *WHOLE[:3], entry("bin/conda-unpack", slow.encode(), 0o755))
    servers = [running(wait="listening", model=path, second=path, third=path) for _ in range(2)]
    servers[0].wait_for((tmp_path / "cache" / "fixed").exists, "an environment that is being made")
    (tmp_path / "cache" / "all" / "go").touch()
    for server in servers:
        server.wait_ready()
        assert Client(server).ask("model", "fine") == "fine"
    assert len(fixed(tmp_path)) == 1


def sparse(size):
    """A file of so many bytes, of which none is in the archive."""
    info = entry("large")[0]
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = b"%011o\0" % size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


BAD = {
    "parent": ([entry("bin/../../out", b"x")], "its name leads out of the archive"),
    "absolute": ([entry("/tmp/out", b"x")], "its name leads out of the archive"),
    "link": ([link("bin/out", "../../out")], "a link out of the archive"),
    "link_absolute": ([link("bin/python3", "/usr/bin/python3")], "a link out of the archive"),
    "link_by_link": ([link("here", "."), link("out", "here/../out")], "a link out of the archive"),
    "through": ([entry("a", type=tarfile.DIRTYPE), link("b", "a"), entry("b/out", b"x")], "its directory is a link"),
    "hard": ([link("out", "../out", tarfile.LNKTYPE)], "a link out of the archive"),
    "hard_absolute": ([link("out", "/etc/passwd", tarfile.LNKTYPE)], "a link out of the archive"),
    "fifo": ([entry("pipe", type=tarfile.FIFOTYPE)], "neither a file nor a directory nor a link"),
    "device": ([entry("null", type=tarfile.CHRTYPE)], "neither a file nor a directory nor a link"),
    "large": ([entry("large", bytes(2 << 20))], "more than 1 MiB unpacked (parameter env_max_mb)"),
    "empty": ([], "it has no bin/python3"),
    "fails": ([*WHOLE[:3], entry("bin/conda-unpack", b"raise SystemExit('no prefix')", 0o755)],
              "its bin/conda-unpack has failed: no prefix"),
    "no_python": ([entry("bin/conda-unpack", b"")], "it has no bin/python3"),
    "text": (b"this is no archive", "it cannot be unpacked: Unrecognized archive format"),
    "garbage": (b"x" * 10000, "it cannot be unpacked: Unrecognized archive format"),
    "name": ([entry("n" * 5000, b"x")], "a name is too long"),
    "claims": (sparse(1 << 32), "more than 1 MiB unpacked (parameter env_max_mb)"),
    "short": (None, "it cannot be unpacked"),
    "missing": (0, "No such file or directory"),
}


def test_archives_that_do_not_fit_are_errors_of_their_models(running, tmp_path):
    paths = {}
    for name, (entries, _) in BAD.items():
        paths[name] = tmp_path / f"{name}.tar.gz"
        if entries is None:
            pack(paths[name], entry("bin/python3", os.urandom(100_000)))
            paths[name].write_bytes(paths[name].read_bytes()[:50_000])
        elif isinstance(entries, bytes):
            paths[name].write_bytes(entries)
        elif entries != 0:
            pack(paths[name], *entries)
    server = running("--backend-config", "python,env_max_mb=1", wait="loaded", **paths)
    server.expect_error("model failed to load")
    reasons = {line["model"]: line["reason"] for line in server.log_lines() if "reason" in line and "model" in line}
    for name, (_, expected) in BAD.items():
        assert expected in reasons[name] and str(paths[name]) in reasons[name], reasons[name]
    assert Client(server).ask("other", "fine") == "fine"
    assert not [path for path in tmp_path.rglob("out") if path.is_file()] and not os.path.exists("/tmp/out")
    left = [name for name in environments(tmp_path) if name != "fixed"]
    assert len(left) <= 1  # that of an archive without an interpreter, which is complete otherwise


def test_cache_that_others_can_write_is_refused(start_server, tmp_path):
    (tmp_path / "open").mkdir()
    os.chmod(tmp_path / "open", 0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    path = pack(tmp_path / "env.tar.gz", *WHOLE)
    python_models.write(tmp_path / "models", "does", "does", DOES + parameter("EXECUTION_ENV_PATH", path)
                        + parameter("env_cache", tmp_path / "open"))
    python_models.write(tmp_path / "models", "linked", "does", DOES + parameter("EXECUTION_ENV_PATH", path)
                        + parameter("env_cache", tmp_path / "link"))
    server = start_server("--model-repository", tmp_path / "models", *FLAGS, wait="loaded")
    server.expect_error("model failed to load")
    reasons = {line["model"]: line["reason"] for line in server.log_lines() if "reason" in line and "model" in line}
    assert all("can be written by other users" in reasons[model] for model in ("does", "linked"))
