"""What every test on Kubernetes may ask for. An API server takes some seconds and 300 MB: tests share one,
each with a namespace of its own, unless they break it."""
import contextlib
import itertools

import pytest

from lib.kube import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The API server of all tests that need none of their own, with every kind of object there is."""
    with Cluster(tmp_path_factory.mktemp("kube")) as one:
        yield one


@pytest.fixture
def namespace(cluster):
    return cluster.new_namespace()


@pytest.fixture
def start_cluster(tmp_path):
    """Starts API servers of the test's own, which it may crash: start_cluster(kinds, flags)."""
    counter = itertools.count()
    with contextlib.ExitStack() as started:
        def start(kinds=None, flags=()):
            folder = tmp_path / f"kube{next(counter)}"
            folder.mkdir()
            return started.enter_context(Cluster(folder, kinds, flags))
        yield start
