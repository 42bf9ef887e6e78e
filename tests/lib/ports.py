"""Ports for programs that must be told theirs."""
import random
import socket


def free_port():
    """A port that nobody listens on, and that the system gives to none who ask for any: a program must be told it, and
    keep it when it starts again."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        end = int(file.read().split()[0])
    while True:
        port = random.randrange(10240, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def free_ports(n):
    """So many different ones."""
    found = set()
    while len(found) < n:
        found.add(free_port())
    return list(found)
