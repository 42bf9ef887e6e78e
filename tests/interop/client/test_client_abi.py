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


def test_each_status_is_in_the_table_of_the_documentation():
    with open(TABLE, encoding="utf-8") as file:
        statuses = set(re.findall(r"^constant SLUICE_CLIENT_(\w+) (-?\d+)$", file.read(), re.MULTILINE))
    with open(os.path.join(server.ROOT, "docs", "client.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"^\| `(\w+)` (-?\d+) \|", file.read(), re.MULTILINE))
    assert documented == statuses
    assert len(statuses) > 10


def test_each_struct_begins_with_its_size():
    with open(TABLE, encoding="utf-8") as file:
        client = file.read().split("# sluice/client.h\n")[1]
    structs = re.findall(r"^struct (\w+) size \d+ align 8\n  (\w+) offset 0 size 8$", client, re.MULTILINE)
    assert {name for name, member in structs if member != "size"} == set()
    assert len(structs) == len(re.findall(r"^struct ", client, re.MULTILINE)) > 10
