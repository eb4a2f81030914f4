"""Random blocks of every type, dequantised by tlm and by the `gguf` package: equal bit for bit."""

import subprocess

import gguf
import numpy as np

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"]
# Where a block has its binary16 numbers.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}


def random_blocks(rng, name, count):
    """Blocks of random bits, their scales finite (subnormal, huge and negative ones too)."""
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for place in HALVES[name]:
        halves = rng.integers(0, 1 << 16, count, dtype=np.uint16)
        halves[(halves & 0x7C00) == 0x7C00] &= 0x83FF
        blocks[:, place:place + 2] = halves.view(np.uint8).reshape(count, 2)
    return blocks


def compare(driver, rng, count):
    """One line a type; the number of types that differ."""
    failures = 0
    for name in TYPES:
        blocks = random_blocks(rng, name, count)
        expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name]).reshape(-1)
        output = subprocess.run([driver, name], input=blocks.tobytes(), capture_output=True, check=True)
        actual = np.frombuffer(output.stdout, np.float32)
        equal = actual.shape == expected.shape and np.array_equal(
            actual.view(np.uint32), expected.astype(np.float32).view(np.uint32))
        print(f"{name}: {expected.size} elements, {'equal' if equal else 'DIFFERENT'}", flush=True)
        failures += not equal
    return failures
