"""The tokenizers compared: published ones, and small ones trained here in the layouts of others."""

import base64
import io
import json
import os

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

ORACLES = os.environ.get("TLM_ORACLES") or os.path.join(
    os.environ.get("TLM_SOURCE_DIR", "."), "..", "shared", "oracles")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]


# Contents of added tokens of all the families, to be put into the strings.
SPECIAL_TEXTS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "<tool_call>",
                 "<|begin_of_text|>", "<s>", "</s>", "<unk>", "<pad>", "<|eot|>", "<tool>", "<left>",
                 "<right>", "wordz", "<norm>", "  ", "Norm é", " <left>", "<right> ", "▁<norm>"]


def added(token_id, content, **flags):
    token = {"id": token_id, "content": content, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": False}
    return {**token, **flags}


def extra_tokens(first_id):
    """One added token for every flag."""
    return [added(first_id, "<|eot|>", special=True),
            added(first_id + 1, "<tool>"),
            added(first_id + 2, "<left>", lstrip=True),
            added(first_id + 3, "<right>", rstrip=True),
            added(first_id + 4, "wordz", single_word=True),
            added(first_id + 5, "<norm>", normalized=True),
            added(first_id + 6, "  ", normalized=False),
            added(first_id + 7, "Norm é", normalized=True, lstrip=True, rstrip=True)]


def bos_template(token, token_id):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}


def document(model, tokens, normalizer, pre_tokenizer, decoder, post_processor=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor, "decoder": decoder, "model": model}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


# --- byte-level BPE ------------------------------------------------------------------------------

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NO_REGEX = {**BYTE_LEVEL, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(corpus, pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=6000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    model["ignore_merges"] = ignore_merges
    if ignore_merges:  # tokens that merges do not lead to
        for word in ("Ġneverthelessly", "CáºŃa", "Ġ1234"):
            model["vocab"][word] = len(model["vocab"])
    bos = len(model["vocab"])
    return document(model, [added(bos, "<|begin_of_text|>", special=True)] + extra_tokens(bos + 1),
                    normalizer, pre_tokenizer, {**BYTE_LEVEL, "add_prefix_space": True},
                    sequence("processors", BYTE_LEVEL, bos_template("<|begin_of_text|>", bos)))


# --- SentencePiece -------------------------------------------------------------------------------

UNDERSCORE = "▁"
FALLBACK_DECODER = sequence(
    "decoders", {"type": "Replace", "pattern": {"String": UNDERSCORE}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"})
LLAMA_DECODER = sequence("decoders", *FALLBACK_DECODER["decoders"],
                         {"type": "Strip", "content": " ", "start": 1, "stop": 0})
SPACES_TO_UNDERSCORES = {"type": "Replace", "pattern": {"String": " "}, "content": UNDERSCORE}
LEGACY_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": UNDERSCORE},
                             SPACES_TO_UNDERSCORES)


def metaspace(scheme, cuts=True):
    return {"type": "Metaspace", "replacement": UNDERSCORE, "prepend_scheme": scheme, "split": cuts}


def pieces_bpe(corpus):
    """Vocabulary and merges over characters, "▁" before words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=5000, limit_alphabet=400, show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def sentencepiece_bpe(trained, normalizer, pre_tokenizer, decoder, byte_fallback=True,
                      fuse_unk=True):
    specials = ["<unk>", "<s>", "</s>"]
    names = specials + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    vocab = {name: i for i, name in enumerate(names)}
    for piece in sorted(trained["vocab"], key=trained["vocab"].get):
        vocab.setdefault(piece, len(vocab))
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": fuse_unk, "byte_fallback": byte_fallback,
             "ignore_merges": False, "vocab": vocab, "merges": trained["merges"]}
    tokens = [added(i, name, special=True) for i, name in enumerate(specials)]
    return document(model, tokens + extra_tokens(len(vocab)), normalizer, pre_tokenizer, decoder,
                    bos_template("<s>", 1))


def unigram(corpus, normalizer, decoder, byte_fallback):
    specials = ["<pad>", "</s>", "<unk>"]
    names = specials + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(corpus[:6000], trainers.UnigramTrainer(
        vocab_size=4000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    trained = json.loads(tokenizer.to_str())["model"]["vocab"]
    vocab = [[name, 0.0] for name in names]
    vocab += [[piece, score] for piece, score in trained if piece not in names]
    model = {"type": "Unigram", "unk_id": 2, "vocab": vocab, "byte_fallback": byte_fallback}
    tokens = [added(i, name, special=True) for i, name in enumerate(specials)]
    return document(model, tokens + extra_tokens(len(vocab)), normalizer, metaspace("always"),
                    decoder)


def charsmap():
    """SentencePiece's nmt_nfkc table; None without the package."""
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        return None
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model, vocab_size=12,
        model_type="unigram", hard_vocab_limit=False, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


# --- all of them ---------------------------------------------------------------------------------

def published(name):
    path = os.path.join(ORACLES, "tokenizer", name, "tokenizer.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def families(corpus):
    """(name, tokenizer.json) of every family; None instead where something is missing."""
    yield "GPT-2", published("gpt2")
    yield "Qwen 3", published("qwen3")
    yield "Llama 3 layout", byte_level(corpus, sequence("pretokenizers", split(LLAMA3), NO_REGEX),
                                       ignore_merges=True)
    yield "o200k layout", byte_level(
        corpus, sequence("pretokenizers", split(O200K), NO_REGEX), {"type": "NFC"})
    yield "DeepSeek layout", byte_level(corpus, sequence(
        "pretokenizers", *map(split, DEEPSEEK), {"type": "Digits", "individual_digits": True},
        NO_REGEX))
    pieces = pieces_bpe(corpus)
    yield "Llama 2 layout", sentencepiece_bpe(pieces, LEGACY_NORMALIZER, None, LLAMA_DECODER)
    yield "Mistral layout", sentencepiece_bpe(pieces, None, metaspace("first", False),
                                              LLAMA_DECODER)
    yield "TinyLlama new", sentencepiece_bpe(pieces, None, metaspace("always", False),
                                             LLAMA_DECODER)
    yield "Gemma layout", sentencepiece_bpe(
        pieces, SPACES_TO_UNDERSCORES,
        {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
         "invert": False}, FALLBACK_DECODER)
    yield "Metaspace, unknowns", sentencepiece_bpe(
        pieces, sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
        metaspace("always"), metaspace("always"), byte_fallback=False)
    yield "first, unknowns", sentencepiece_bpe(
        pieces, sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"},
                         {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": UNDERSCORE}),
        sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first")),
        metaspace("never"), byte_fallback=False)
    yield "words, unknowns", sentencepiece_bpe(
        pieces, sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"},
                         {"type": "Nmt"}, {"type": "Strip", "strip_left": True,
                                           "strip_right": True}),
        sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always"),
                 {"type": "Punctuation", "behavior": "MergedWithNext"},
                 split(r"\p{N}", "Contiguous")),
        metaspace("never"), byte_fallback=False, fuse_unk=False)
    yield "Whitespace", sentencepiece_bpe(
        pieces, {"type": "NFKD"}, sequence("pretokenizers", {"type": "Whitespace"},
                                           {"type": "Digits", "individual_digits": False}),
        {"type": "Fuse"}, byte_fallback=False)
    yield "Unigram", unigram(corpus, {"type": "NFKC"}, metaspace("always"), False)
    yield "Unigram, bytes", unigram(corpus, None, LLAMA_DECODER, True)
    table = charsmap()
    yield "Unigram, charsmap", table and unigram(
        corpus, sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": table},
                         {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        metaspace("always"), False)
