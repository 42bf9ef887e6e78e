"""The tests of idle connections: how many are opened, and how much memory each may take."""
N = 10_000
N_FIRST = 200  # opened before the measurement begins: their cost is that of the start
MAX_BYTES_EACH = 4096
