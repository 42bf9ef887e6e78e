"""Commands for gdb that print objects of a request: gdb -x tools/gdb.py build/sluice

    sluice-arena EXPRESSION     a struct arena *: chunks, large blocks, bytes and limit
    sluice-request EXPRESSION   a struct infer_request *: id, inputs with shape and first bytes, outputs
    sluice-call EXPRESSION      a struct call *: state, times, the request and its arena

Strings are struct str. The program needs debug information, as the plain build has.
"""
import gdb

FIRST_BYTES = 16


def text(value):
    """A struct str."""
    if int(value["ptr"]) == 0:
        return ""
    return value["ptr"].string(encoding="utf-8", errors="backslashreplace", length=int(value["len"]))


def items(pointer, n):
    return [(pointer + i).dereference() for i in range(int(n))]


def dims(shape):
    return [int(dim) for dim in items(shape["dims"], shape["rank"])]


def first_bytes(tensor):
    for piece in items(tensor["pieces"], tensor["n_pieces"]):
        n = min(int(piece["n_bytes"]), FIRST_BYTES)
        if n > 0:
            data = gdb.selected_inferior().read_memory(int(piece["data"]), n)
            return bytes(data).hex(" ")
    return ""


def print_arena(arena):
    n_chunks = n_large = large_bytes = 0
    chunk = arena["chunks"]
    while int(chunk) != 0:
        n_chunks += 1
        chunk = chunk["next"]
    large = arena["larges"]["lh_first"]
    while int(large) != 0:
        n_large += 1
        large_bytes += int(large["n_bytes"])
        large = large["link"]["le_next"]
    free = int(arena["end"]) - int(arena["at"])
    print(f"arena {arena.address}: {n_chunks} chunks, {free} bytes free in the newest;"
          f" {n_large} large blocks of {large_bytes} bytes; {int(arena['total'])} bytes of at most"
          f" {int(arena['limit'])}")


def print_tensor(tensor):
    print(f"  input {text(tensor['name'])}: {tensor['datatype']} {dims(tensor['shape'])},"
          f" {int(tensor['n_bytes'])} bytes in {int(tensor['n_pieces'])} pieces: {first_bytes(tensor)}")


def print_request(request):
    print(f"request id \"{text(request['id'])}\", batch {int(request['batch'])},"
          f" {int(request['params']['n'])} parameters, deadline {int(request['deadline_ns'])} ns")
    for infer_input in items(request["inputs"], request["n_inputs"]):
        print_tensor(infer_input["tensor"])
    for output in items(request["wanted"], request["n_wanted"]):
        print(f"  output {text(output['name'])}")
    if int(request["n_wanted"]) == 0:
        print("  all outputs")


def print_call(call):
    state = call["state"]
    print(f"call {call.address}: {state}, instance {int(call['instance'])},"
          f" queued {int(call['queued_ns'])} ns, started {int(call['started_ns'])} ns,"
          f" finished {int(call['finished_ns'])} ns")
    request = call["request"].dereference()
    print_request(request)
    print_arena(request["arena"].dereference())


class Command(gdb.Command):
    def __init__(self, name, show):
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)
        self.name = name
        self.show = show

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError(f"usage: {self.name} EXPRESSION")
        value = gdb.parse_and_eval(argument)
        if value.type.strip_typedefs().code == gdb.TYPE_CODE_PTR:
            value = value.dereference()
        self.show(value)


Command("sluice-arena", print_arena)
Command("sluice-request", print_request)
Command("sluice-call", print_call)
