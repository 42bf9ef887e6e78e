"""A memory control group for a server under test, below the group of the test itself: v1, or v2 where that has the memory
controller. What sockets hold counts in v2's memory.current and not in v1's usage, so here it is added there."""
import os
import time

MOUNT = "/sys/fs/cgroup"
PLENTY = 1 << 40


def own_groups():
    """Returns: controllers → path of /proc/self/cgroup; v2's has no controllers."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        return {controllers: path for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file)}


class CannotMake(AssertionError):
    """This machine lets the test make no memory control group."""


def parents():
    """Yields: (is it v2, folder), those to try first."""
    for controllers, path in own_groups().items():
        if "memory" in controllers.split(","):
            for mount in (f"{MOUNT}/{controllers}", f"{MOUNT}/memory"):
                yield False, mount + path
        elif not controllers:
            folder = MOUNT + path
            while folder.startswith(MOUNT):  # a group with processes has no groups below it that count memory
                yield True, folder
                folder = os.path.dirname(folder)


class MemoryGroup:
    """`with MemoryGroup(512 << 20) as group: Server(…, prefix=group.prefix)`"""

    def __init__(self, n_bytes):
        self.limit, tried = n_bytes, []
        for self.is_v2, parent in parents():
            try:
                self.folder = self.make(parent)
                return
            except OSError as failed:
                tried.append(f"{parent}: {failed}")
        raise CannotMake("no memory control group can be made here, neither of v1 nor of v2 (run this test as root, in a"
                         " container with a writable /sys/fs/cgroup): " + "; ".join(tried))

    def make(self, parent):
        if self.is_v2 and "memory" not in self.read("cgroup.subtree_control", parent).split():
            self.write("cgroup.subtree_control", "+memory", parent)
        folder = f"{parent}/crowd-{os.getpid()}-{time.monotonic_ns()}"
        os.mkdir(folder)
        try:
            if self.is_v2:
                self.write("memory.max", self.limit, folder)
            else:
                self.write("memory.limit_in_bytes", self.limit, folder)
                self.write("memory.kmem.tcp.limit_in_bytes", PLENTY, folder)  # counts from then on
        except OSError:
            os.rmdir(folder)
            raise
        return folder

    def read(self, name, folder=None):
        with open(f"{folder or self.folder}/{name}", encoding="ascii") as file:
            return file.read()

    def write(self, name, value, folder=None):
        with open(f"{folder or self.folder}/{name}", "w", encoding="ascii") as file:
            file.write(str(value))

    @property
    def prefix(self):
        """The command that runs another one in the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{self.folder}/cgroup.procs"]

    def number(self, name, key):
        return next(int(line.split()[1]) for line in self.read(name).splitlines() if line.split()[0] == key)

    def socket_bytes(self):
        if self.is_v2:
            return self.number("memory.stat", "sock")
        return int(self.read("memory.kmem.tcp.usage_in_bytes"))

    def kernel_bytes(self):
        """Of sockets, descriptors, page tables, without the sockets' buffers."""
        if self.is_v2:
            return self.number("memory.stat", "kernel")
        return int(self.read("memory.kmem.usage_in_bytes"))

    def used_bytes(self):
        """All that counts against the limit with v2, but for the files that the kernel can drop."""
        files = self.number("memory.stat", "inactive_file")
        if self.is_v2:
            return int(self.read("memory.current")) - files
        return int(self.read("memory.usage_in_bytes")) - files + self.socket_bytes()

    def n_killed(self):
        return self.number("memory.events" if self.is_v2 else "memory.oom_control", "oom_kill")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError:  # the last process is about to leave it
                time.sleep(0.1)
