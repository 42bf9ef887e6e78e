"""The ABI of libsluice against its table, client.abi: sizes, offsets, constants, symbols. docs/abi.md
says what may change in it."""
import os
import re
import subprocess
import sys

from lib import server

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.abi")
TOOL = os.path.join(server.ROOT, "tools", "abi-table")


def test_abi_is_as_in_its_table():
    made = subprocess.run([sys.executable, TOOL, server.build()], check=True, text=True, stdout=subprocess.PIPE)
    with open(TABLE, encoding="utf-8") as file:
        wanted = file.read()
    assert made.stdout.splitlines() == wanted.splitlines()


def paddings(struct):
    """The members behind which a struct of the table has padding."""
    members = [(name, int(offset), int(size)) for name, offset, size in
               re.findall(r"^  (\w+) offset (\d+) size (\d+)$", struct, re.MULTILINE)]
    ends = [offset for _, offset, _ in members[1:]] + [int(re.search(r" size (\d+) ", struct)[1])]
    return [name for (name, offset, size), end in zip(members, ends) if offset + size < end]


def test_no_struct_has_padding_that_was_not_in_1_0():
    """The bytes of padding are arbitrary, and the library refuses what is not zero past the members that it knows."""
    with open(TABLE, encoding="utf-8") as file:
        structs = re.findall(r"^struct (\w+)( size.*\n(?:  .*\n)+)", file.read(), re.MULTILINE)
    assert {name: found for name, rows in structs if (found := paddings(rows))} == {
        "sluice_client_options": ["max_connections"], "sluice_mip_item": ["type"],
        "sluice_retry_policy": ["max_attempts"], "sluice_tensor": ["datatype"],
        "sluice_tensor_spec": ["datatype"], "sluice_wanted": ["n_classes"]}


def test_each_status_is_in_the_table_of_the_documentation():
    with open(TABLE, encoding="utf-8") as file:
        statuses = set(re.findall(r"^constant SLUICE_CLIENT_(\w+) (-?\d+)$", file.read(), re.MULTILINE))
    with open(os.path.join(server.ROOT, "docs", "client.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"^\| `(\w+)` (-?\d+) \|", file.read(), re.MULTILINE))
    assert documented == statuses
    assert len(statuses) > 10


def test_each_enumeration_has_32_bits():
    with open(TABLE, encoding="utf-8") as file:
        sizes = re.findall(r"^enum \w+ size (\d+)$", file.read(), re.MULTILINE)
    assert sizes == ["4"] * 6


def test_each_struct_begins_with_its_size():
    with open(TABLE, encoding="utf-8") as file:
        client = file.read().split("# sluice/client.h\n")[1]
    structs = re.findall(r"^struct (\w+) size \d+ align 8\n  (\w+) offset 0 size 8$", client, re.MULTILINE)
    assert {name for name, member in structs if member != "size"} == set()
    assert len(structs) == len(re.findall(r"^struct ", client, re.MULTILINE)) > 10
