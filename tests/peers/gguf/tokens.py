"""Token ids of random texts by the vocabularies in GGUF files: tlm, llama.cpp and `tokenizers`.

tlm encodes as the model's original tokenizer does. llama.cpp divides texts by rules of its own, and
normalises none. So where tlm and llama.cpp differ, tlm must agree with Hugging Face's tokenizers,
which read the tokenizer.json that the vocabulary was made from.
"""

import json
import pathlib
import sys

import llama_cpp
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tokenizers"))

import families  # noqa: E402
from compare import corpus, run  # noqa: E402
from families import added, split  # noqa: E402
from strings import random_strings  # noqa: E402
from vocabularies import write_byte_level, write_scored  # noqa: E402

QWEN2 = families.LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DIGITS = {"type": "Digits", "individual_digits": True}
# Of every name of a pre-tokenizer: what Hugging Face has for it, its normaliser, ignore_merges.
BYTE_LEVEL = {
    "gpt-2": ([families.BYTE_LEVEL], None, False),
    "qwen2": ([split(QWEN2), families.NO_REGEX], {"type": "NFC"}, False),
    "deepseek-r1-qwen": ([split(QWEN2), families.NO_REGEX], None, False),
    "llama-bpe": ([split(families.LLAMA3), families.NO_REGEX], None, True),
    "smaug-bpe": ([split(families.LLAMA3), families.NO_REGEX], None, False),
    "tekken": ([split(families.O200K), families.NO_REGEX], None, True),
    "starcoder": ([DIGITS, families.BYTE_LEVEL], None, False),
    "deepseek-coder": ([*map(split, families.DEEPSEEK), DIGITS, families.NO_REGEX], None, False),
}
SPECIALS = ["<|begin_of_text|>", "<|eot|>", "<tool>"]
SHOWN = 3
NO_LOG = llama_cpp.llama_log_callback(lambda level, text, data: None)


def byte_level_document(trained, steps, normalizer, ignore_merges):
    """`trained` with the pre-tokenizer's steps, and added tokens without flags."""
    model = {**trained["model"], "ignore_merges": ignore_merges}
    tokens = [added(len(model["vocab"]) + i, text, special=text != "<tool>")
              for i, text in enumerate(SPECIALS)]
    begin = families.bos_template(SPECIALS[0], tokens[0]["id"])
    return families.document(
        model, tokens, normalizer, families.sequence("pretokenizers", *steps), families.BYTE_LEVEL,
        families.sequence("processors", families.BYTE_LEVEL, begin))


def scored_document(pieces, prefix):
    """SentencePiece's BPE: ids are by score, merges all pairs of pieces that are a piece."""
    normalizer = families.LEGACY_NORMALIZER if prefix else families.SPACES_TO_UNDERSCORES
    known = set(pieces["vocab"])
    merges = [(word[:cut], word[cut:]) for word in sorted(known, key=pieces["vocab"].get)
              for cut in range(1, len(word)) if word[:cut] in known and word[cut:] in known]
    decoder = families.LLAMA_DECODER if prefix else families.FALLBACK_DECODER
    document = families.sentencepiece_bpe({**pieces, "merges": merges}, normalizer, None, decoder)
    count = len(document["model"]["vocab"])
    document["added_tokens"] = document["added_tokens"][:3] + [
        added(count, "<|eot|>", special=True), added(count + 1, "<tool>")]
    return document


def vocabularies(folder):
    """(name, file, tokenizer.json) of every vocabulary."""
    texts = corpus()
    for name, source in (("gpt-2", "gpt2"), ("qwen2", "qwen3")):
        if (document := families.published(source)) is not None:
            write_byte_level(folder / "model.gguf", document, name, None)
            yield f"{name}, published", folder / "model.gguf", document
    trained = families.byte_level(texts, families.BYTE_LEVEL, ignore_merges=True)
    for name, parts in BYTE_LEVEL.items():
        document = byte_level_document(trained, *parts)
        write_byte_level(folder / "model.gguf", document, name, SPECIALS[0])
        yield name, folder / "model.gguf", document
    pieces = families.pieces_bpe(texts)
    for prefix in (True, False):
        document = scored_document(pieces, prefix)
        write_scored(folder / "model.gguf", document, prefix)
        name = "SentencePiece" + (", space in front" if prefix else "")
        yield name, folder / "model.gguf", document


def compare(driver, name, path, document, texts):
    """One line; the number of texts of which our ids are those of neither other."""
    ours = run(driver, str(path), texts)
    llama_cpp.llama_log_set(NO_LOG, None)  # it would warn of texts with a token for their beginning
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    theirs = [model.tokenize(text.encode(), add_bos=True, special=True) for text in texts]
    model.close()
    original = Tokenizer.from_str(json.dumps(document, ensure_ascii=False))
    originals = [encoding.ids for encoding in original.encode_batch_fast(texts)]
    different = [i for i in range(len(texts)) if ours[i][0] != theirs[i]]
    wrong = [i for i in different if ours[i][0] != originals[i]]
    print(f"{name:28} {len(texts)} texts: {len(different)} differ from llama.cpp's, {len(wrong)} "
          "of them from the original tokenizer's, too", flush=True)
    for i in wrong[:SHOWN]:
        print(f"  {texts[i]!r}\n    ours      {ours[i]}\n    llama.cpp {theirs[i]}\n"
              f"    original  {originals[i]}")
    return len(wrong)


def compare_all(driver, seed, folder, count):
    texts = [text for text in random_strings(count, seed, SPECIALS + ["<s>", "</s>", "<unk>"])
             if "<0x" not in text and "\0" not in text]
    return sum(compare(driver, name, path, document, texts)
               for name, path, document in vocabularies(folder))
