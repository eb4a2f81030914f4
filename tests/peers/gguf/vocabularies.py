"""Vocabularies in GGUF files, written by the `gguf` package."""

import gguf

Type = gguf.TokenType


def byte_letters():
    """The characters that stand for the bytes 0 to 255 in byte-level vocabularies (GPT-2's)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def add_plain_vocabulary(writer, count):
    """A token for every byte, a merge, an end, and unused ones."""
    tokens = byte_letters() + ["th", "<|endoftext|>"]
    types = [Type.NORMAL] * 257 + [Type.CONTROL]
    types += [Type.UNUSED] * (count - len(tokens))
    tokens += [f"[PAD{i}]" for i in range(len(tokens), count)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(257)


def begin(path):
    """A file with what every model has, whose tensors are not read."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def tokens_of(document):
    """Texts and types of all tokens of a tokenizer.json, gaps filled."""
    vocab, extra = document["model"]["vocab"], document["added_tokens"]
    count = 1 + max([*vocab.values(), *(token["id"] for token in extra)])
    texts, types = [f"[PAD{i}]" for i in range(count)], [Type.UNUSED] * count
    for text, token in vocab.items():
        texts[token], types[token] = text, Type.NORMAL
    for token in extra:
        texts[token["id"]] = token["content"]
        types[token["id"]] = Type.CONTROL if token["special"] else Type.USER_DEFINED
    return texts, types


def write_byte_level(path, document, pre, bos):
    """`bos`: the token that stands before every text, if any."""
    texts, types = tokens_of(document)
    writer = begin(path)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge)
                             for merge in document["model"]["merges"]])
    if bos is not None:
        writer.add_bos_token_id(texts.index(bos))
    writer.add_add_bos_token(bos is not None)
    finish(writer)


def write_scored(path, document, prefix):
    """SentencePiece's BPE: the token of the lower id has the higher score."""
    texts, types = tokens_of(document)
    scores = [-float(i) for i in range(len(texts))]
    for i, text in enumerate(texts):
        if len(text) == 6 and text.startswith("<0x"):
            types[i] = Type.BYTE
    types[texts.index("<unk>")] = Type.UNKNOWN
    writer = begin(path)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(texts.index("<s>"))
    writer.add_eos_token_id(texts.index("</s>"))
    writer.add_unk_token_id(texts.index("<unk>"))
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(prefix)
    finish(writer)
