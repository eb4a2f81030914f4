"""A small model with heads as wide as those of served ones, for runs that look for faults."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))

import random_checkpoint  # noqa: E402

# Widths that the tensor cores and the library take; heads of 128, where model/demo has 64.
random_checkpoint.SHAPES["gpu-small"] = {
    "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 2048,
    "max_position_embeddings": 4096, "tie_word_embeddings": True}


def write(folder):
    """Writes it where it is not yet; returns the folder."""
    random_checkpoint.write_model(folder, "gpu-small", None)
    return folder
