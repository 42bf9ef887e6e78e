"""Splits a text to word pieces, as BERT's tokenizer does: the longest piece of the vocabulary first. Numbers are
those of the lines of vocabulary.txt, beside this file."""
import os
import re

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "text", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "input_ids", "data_type": "TYPE_INT64", "dims": [-1]})
        config.add_output({"name": "attention_mask", "data_type": "TYPE_INT64", "dims": [-1]})
        return config

    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "vocabulary.txt"), encoding="utf-8") as file:
            self.numbers = {piece: number for number, piece in enumerate(file.read().split("\n"))}

    def pieces_of(self, word):
        pieces, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin > 0 else ""
            end = next((end for end in range(len(word), begin, -1) if prefix + word[begin:end] in self.numbers), None)
            if end is None:
                return ["[UNK]"]
            pieces.append(prefix + word[begin:end])
            begin = end
        return pieces

    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text").as_numpy()[0].decode()
            pieces = ["[CLS]"]
            for word in re.findall(r"\w+|[^\w\s]", text.lower()):
                pieces += self.pieces_of(word)
            ids = np.array([self.numbers[piece] for piece in [*pieces, "[SEP]"]], np.int64)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("input_ids", ids),
                                                         pb_utils.Tensor("attention_mask", np.ones_like(ids))]))
        return responses
