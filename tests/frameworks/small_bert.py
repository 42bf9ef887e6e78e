"""Makes a DistilBERT of a few kilobytes with random weights, and its tokenizer, in the folder in which the page's commands
look for the one of Hugging Face first: small_bert.py FOLDER"""
import os
import sys

from transformers import DistilBertConfig, DistilBertForSequenceClassification, DistilBertTokenizerFast

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "a", "good", "day"]

folder = sys.argv[1]
os.makedirs(folder)
with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
    file.write("\n".join(WORDS) + "\n")
DistilBertTokenizerFast(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
config = DistilBertConfig(vocab_size=len(WORDS), dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=64)
DistilBertForSequenceClassification(config).save_pretrained(folder)
