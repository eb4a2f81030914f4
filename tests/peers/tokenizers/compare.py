"""Compares token ids and decoded text with Hugging Face tokenizers on random strings.

compare.py PEERS_TOKENIZE [COUNT [FAMILY...]]: COUNT strings (100,000 unless given) for every family,
or for those named; one line a family, and exit status 1 when any string differs.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: the interpreter of TLM_PEERS_PYTHON has no package 'tokenizers'")
    sys.exit(77)

from families import ORACLES, SPECIAL_TEXTS, families
from strings import random_strings

SHOWN = 5
# Written out in a text it may become the token of a byte that is no character. Of such bytes, and of
# good ones beside them, Hugging Face decodes none, a stream all that it can: only ids are compared.
LONE_BYTE = "<0xE4>"


def corpus():
    """Some English, and as much of what the random strings are made of."""
    lines = []
    path = os.path.join(ORACLES, "corpus")
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else []:
        if name.endswith(".txt"):
            with open(os.path.join(path, name), encoding="utf-8", errors="replace") as file:
                lines += file.read(400_000).splitlines()
    lines += random_strings(8000, 99, ["tool"])
    # No vocabulary has a token of which the name of a byte is a part.
    return [line for line in lines if "<0x" not in line]


def run(driver, path, strings):
    """Per string: ids, text, text without special tokens; or a message."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in map(str.encode, strings))
    done = subprocess.run([driver, path], input=data, stdout=subprocess.PIPE, check=True)
    view, position, results = memoryview(done.stdout), 0, []

    def number():
        nonlocal position
        position += 4
        return struct.unpack_from("<I", view, position - 4)[0]

    def string():
        nonlocal position
        size = number()
        position += size
        return bytes(view[position - size:position]).decode()

    for _ in strings:
        count = number()
        if count == 0xFFFFFFFF:
            results.append(string())
            continue
        ids = list(struct.unpack_from(f"<{count}I", view, position))
        position += 4 * count
        results.append((ids, string(), string()))
    return results


def compare(driver, name, document, strings):
    start = time.time()
    count = len(strings)
    text = json.dumps(document, ensure_ascii=False)
    peer = Tokenizer.from_str(text)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        path = os.path.join(folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        ours = pool.submit(run, driver, path, strings)
        ids = [encoding.ids for encoding in peer.encode_batch_fast(strings)]
        theirs = list(zip(ids, peer.decode_batch(ids, skip_special_tokens=False),
                          peer.decode_batch(ids, skip_special_tokens=True)))
        ours = ours.result()
    different = [i for i in range(count) if ours[i] != theirs[i] and not (
        LONE_BYTE in strings[i] and ours[i][0] == theirs[i][0])]
    wrong_ids = sum(isinstance(ours[i], str) or ours[i][0] != theirs[i][0] for i in different)
    print(f"{name:20} {count} strings, {sum(map(len, ids))} tokens: {wrong_ids} differ in ids, "
          f"{len(different) - wrong_ids} in decoded text only ({time.time() - start:.0f} s)",
          flush=True)
    for i in different[:SHOWN]:
        print(f"  {strings[i]!r}\n    ours   {ours[i]}\n    theirs {theirs[i]}")
    return len(different)


def main():
    driver = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    wanted = sys.argv[3:]
    different = 0
    strings = random_strings(count, 1, SPECIAL_TEXTS)
    for name, document in families(corpus()):
        if wanted and name not in wanted:
            continue
        if document is None:
            print(f"{name:20} skipped: what it needs is not here", flush=True)
            continue
        different += compare(driver, name, document, strings)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
