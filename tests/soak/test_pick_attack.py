"""Configurations, endpoints and clients of a picker that change all the time: ATTACK_REQUESTS requests in all, from the
seed ATTACK_SEED. Best with the address sanitizer: `SLUICE_BUILD=build/asan`."""
import os

from lib.pick_attack import FLAGS, Attack

N_CLIENTS = 6
N = int(os.environ.get("ATTACK_REQUESTS", "30000"))


def test_picker_survives_a_long_attack(start_picker, tmp_path):
    attack = Attack(tmp_path, int(os.environ.get("ATTACK_SEED", "1")))
    attack.run(start_picker(attack.first_config(), *FLAGS), N_CLIENTS, N // N_CLIENTS)
    print(dict(attack.counts))
    assert attack.counts["answered"] > N / 100
