"""Python's classes of the messages of a .proto file, by protoc."""
import os
import subprocess
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def classes_of(path, package):
    """name → class of each message in the file, without the package's name; in a pool of their own."""
    folder, name = os.path.split(path)
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{folder}", f"--descriptor_set_out={out.name}", name], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    found = message_factory.GetMessages(files.file, pool=descriptor_pool.DescriptorPool())
    return {name.removeprefix(package + "."): kind for name, kind in found.items()}
