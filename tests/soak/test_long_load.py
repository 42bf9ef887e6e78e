"""A load that takes long is a line of the log every ten seconds, where there is no terminal. `make soak`."""
from lib import backends, http1


def test_long_load_is_logged(start_server, tmp_path):
    gate, models = tmp_path / "gate", tmp_path / "models"
    (models / "slow" / "1").mkdir(parents=True)
    (models / "slow" / "config.pbtxt").write_text(
        'backend: "gate" input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 '
        f'dims: 1 }} parameters {{ key: "gate" value {{ string_value: "{gate}" }} }}')
    server = start_server("--backend-dir", backends.make(tmp_path, "gate"), "--model-repository", models, wait="listening")

    def seconds():
        return [line["seconds"] for line in server.log_lines() if line["event"] == "model still loading"]
    server.wait_for(lambda: len(seconds()) >= 2, "two lines about the load")
    gate.touch()
    server.wait_ready()
    assert http1.request(server.address, "GET", "/v2/models/slow/ready").status == 200
    assert 10 <= seconds()[0] and 10 <= seconds()[1] - seconds()[0]
