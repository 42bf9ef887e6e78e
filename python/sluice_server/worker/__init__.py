"""The worker process of one instance of a model in Python. The server starts it with the interpreter that the model
has: it needs the standard library and numpy, and nothing of the package that it is a part of.

    __main__  the program
    wire      the messages between server and worker, as bytes
    channel   the socket, and the shared memory that came over it
    tensors   datatypes, and tensors as numpy has them
    api       what models import as triton_python_backend_utils
    serve     the life of a model: load, initialize, execute, finalize
"""
