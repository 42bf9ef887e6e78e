"""A pipeline of scikit-learn with a step that is a function of Python, which exporters do not take: sluice serve iris.py

It is trained when it is loaded, which takes moments; a pipeline of your own would be read from a file beside this one,
joblib.load(os.path.join(pb_utils.get_model_dir(), "pipeline.joblib"))."""
import numpy as np
import triton_python_backend_utils as pb_utils
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler


def with_areas(rows):
    """Of sepal and petal, beside their lengths and widths."""
    return np.column_stack([rows, rows[:, 0] * rows[:, 1], rows[:, 2] * rows[:, 3]])


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "measures", "data_type": "TYPE_FP64", "dims": [4]})
        config.add_output({"name": "species", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "probabilities", "data_type": "TYPE_FP64", "dims": [3]})
        config.set_max_batch_size(64)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        data = load_iris()
        self.names = data.target_names.astype(object)
        self.pipeline = make_pipeline(FunctionTransformer(with_areas), StandardScaler(), LogisticRegression())
        self.pipeline.fit(data.data, data.target)

    def execute(self, requests):
        # One call of the pipeline for the rows of all requests.
        rows = [pb_utils.get_input_tensor_by_name(request, "measures").as_numpy() for request in requests]
        probabilities = self.pipeline.predict_proba(np.concatenate(rows))
        species = self.names[probabilities.argmax(axis=1)].reshape(-1, 1)
        responses, end = [], 0
        for n_rows in map(len, rows):
            begin, end = end, end + n_rows
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("species", species[begin:end]),
                                                         pb_utils.Tensor("probabilities", probabilities[begin:end])]))
        return responses
