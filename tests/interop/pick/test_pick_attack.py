"""A short attack on a picker by changes of everything at once; tests/soak has a long one."""
import pytest

from lib.pick_attack import FLAGS, Attack

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("seed", [1, 2])
def test_picker_survives_changes_of_everything(start_picker, tmp_path, seed):
    """Each request has a defined answer: an endpoint of the pool, or a refusal; all counts are 0 afterwards."""
    attack = Attack(tmp_path, seed)
    attack.run(start_picker(attack.first_config(), *FLAGS), n_clients=4, n_requests=60)
    assert attack.counts["answered"] > 0, attack.counts
