"""Makes model directories with the chat templates of published families, random weights and a real
vocabulary; and reads complete answers. The readers know each family's markup and none of the
server's code."""

import dataclasses
import json
import os
import pathlib
import re

import float64_model

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
DEMO_VOCABULARY = SOURCE_DIR / "model/demo/tokenizer.json"
TEMPLATES = SOURCE_DIR / "tests/unit/model/chat/data"
ORACLES = pathlib.Path(os.environ.get("TLM_ORACLES") or SOURCE_DIR.parent / "shared/oracles")
QWEN3 = ORACLES / "tokenizer/qwen3/tokenizer.json"

# A model of this shape samples about evenly from the tokens that the constraint allows.
SHAPE = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64,
         "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 16384,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


@dataclasses.dataclass(frozen=True)
class Family:
    """A template with the tokens that its tokenizer adds."""
    template: str
    calls: object  # returns the complete calls of a text as (name, arguments)
    opens: str  # the beginning of calls; a token, or the first characters of the text
    tokens: tuple = ()
    special: tuple = ()
    ends: tuple = ("<|im_end|>",)
    reasoning: tuple = ()  # opens, closes, closes it when its budget is used up
    reasons_again: bool = False  # after a text before calls
    parallel: bool = True


def qwen_calls(text):
    """Hermes: a JSON object of name and arguments between tags."""
    calls = []
    for inside in re.findall(r"<tool_call>\n(\{.*?\})\n</tool_call>", text, re.S):
        call = json.loads(inside)
        assert list(call) == ["name", "arguments"], call
        calls.append((call["name"], call["arguments"]))
    return calls


def qwen3_coder_calls(text, strings):
    """XML; `strings` has for each tool the parameters whose text is not JSON."""
    calls = []
    for call in re.finditer(r"<tool_call>\n<function=([^>]+)>\n", text):
        arguments, at, name = {}, call.end(), call[1]
        while parameter := re.compile(r"<parameter=([^>]+)>\n").match(text, at):
            end = text.find("\n</parameter>\n", parameter.end())
            if end < 0:
                break
            value = text[parameter.end():end]
            arguments[parameter[1]] = value if parameter[1] in strings[name] else json.loads(value)
            at = end + len("\n</parameter>\n")
        if text.startswith("</function>\n</tool_call>", at):
            calls.append((name, arguments))
    return calls


def llama_calls(text):
    """One call, which is all of the text."""
    try:
        call = json.loads(text)
    except ValueError:
        return []
    if not isinstance(call, dict) or list(call) != ["name", "parameters"]:
        return []
    return [(call["name"], call["parameters"])]


def mistral_calls(text):
    """A list of objects after one token."""
    _, opened, behind = text.partition("[TOOL_CALLS]")
    if not opened:
        return []
    try:
        calls, _ = json.JSONDecoder().raw_decode(behind.lstrip(" "))
    except ValueError:
        return []
    return [(call["name"], call["arguments"]) for call in calls]


def deepseek_calls(text):
    """Names and arguments between tokens."""
    _, _, behind = text.partition("<｜tool▁calls▁begin｜>")
    return [(name, json.loads(arguments)) for name, arguments in re.findall(
        "<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", behind, re.S)]


def harmony_calls(text):
    """Messages to functions; the token that ends one is an end of the sequence, too."""
    _, opened, behind = text.partition("<|channel|>commentary to=functions.")
    name, constrained, arguments = behind.partition(" <|constrain|>json<|message|>")
    if not opened or not constrained:
        return []
    try:
        value, end = json.JSONDecoder().raw_decode(arguments)
    except ValueError:
        return []
    return [(name, value)] if arguments[end:] in ("", "<|call|>") else []


CHATML = ("<|im_start|>", "<|im_end|>")
THINK = ("<think>", "</think>", "\n</think>\n\n")
TOOL_CALL = ("<tool_call>", "</tool_call>")
DEEPSEEK = tuple(f"<｜{name}｜>" for name in (
    "tool▁calls▁begin", "tool▁calls▁end", "tool▁call▁begin", "tool▁call▁end", "tool▁sep"))
HARMONY = tuple(f"<|{name}|>" for name in (
    "start", "end", "message", "channel", "constrain", "return", "call"))

FAMILIES = {
    "qwen3": Family("qwen3.jinja", qwen_calls, "<tool_call>", TOOL_CALL + THINK[:2], CHATML,
                    reasoning=THINK),
    "qwen2.5, markers as text": Family("qwen2.5.jinja", qwen_calls, "<tool_call>", (), CHATML),
    "qwen3, special markers": Family("qwen3.jinja", qwen_calls, "<tool_call>", (),
                                     CHATML + TOOL_CALL + THINK[:2], reasoning=THINK),
    "qwen3-coder": Family("qwen3-coder.jinja", qwen3_coder_calls, "<tool_call>", TOOL_CALL,
                          CHATML),
    "llama-3.1": Family("llama-3.1.jinja", llama_calls, "{", (), (
        "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
        "<|eot_id|>", "<|python_tag|>"), ("<|eot_id|>", "<|eom_id|>"), parallel=False),
    "mistral": Family("mistral-v0.3.jinja", mistral_calls, "[TOOL_CALLS]", (), (
        "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"), ("</s>",)),
    "deepseek-v3.1": Family("deepseek-calls.jinja", deepseek_calls, DEEPSEEK[0],
                            THINK[:2] + DEEPSEEK,
                            ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
                            ("<｜end▁of▁sentence｜>",), THINK),
    "gpt-oss": Family("harmony.jinja", harmony_calls, "<|channel|>", (), HARMONY,
                      ("<|return|>", "<|call|>"),
                      ("<|channel|>analysis<|message|>", "<|end|>", "<|end|><|start|>assistant"),
                      reasons_again=True, parallel=False),
}


def template_of(family):
    return (TEMPLATES / family.template).read_text(encoding="utf-8")


def make_model(directory, family, tokenizer=DEMO_VOCABULARY, likely=None):
    """Fills the directory with a model of the family, to be served with --random_weights. With
    `likely` it has weights that raise the logits of these tokens by these amounts."""
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))
    added = vocabulary["added_tokens"]
    known = {token["content"]: token for token in added}
    first = max(max(token["id"] for token in added), max(vocabulary["model"]["vocab"].values())) + 1
    for text in family.tokens + family.special:
        if text not in known:
            known[text] = {"id": first, "content": text, "single_word": False, "lstrip": False,
                           "rstrip": False, "normalized": False}
            added.append(known[text])
            first += 1
        known[text]["special"] = text in family.special
    directory.mkdir(parents=True)
    (directory / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    ends = [known[text]["id"] for text in family.ends]
    shape = SHAPE
    if likely is not None:
        ids = vocabulary["model"]["vocab"] | {text: token["id"] for text, token in known.items()}
        shape = write_weights(directory, first, {ids[text]: by for text, by in likely.items()})
    files = {"config.json": shape | {"vocab_size": first, "eos_token_id": ends},
             "generation_config.json": {"eos_token_id": ends},
             "tokenizer_config.json": {
                 "bos_token": next((text for text in family.special if "begin" in text or
                                    text == "<s>"), None),
                 "eos_token": family.ends[0]}}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(template_of(family), encoding="utf-8")
    return directory


def write_weights(directory, vocab, likely):
    """Writes the weights of a small model whose state is mainly one number that never changes, and
    returns its configuration."""
    config = {"model_type": "transformer_lm", "architectures": ["TransformerLM"], "context_length": 4096, "vocab_size": vocab,
              "d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 16}
    fields = float64_model.ConfigFields(config)
    tensors = float64_model.random_tensors(fields, seed=8)
    names, width, constant = fields.names, fields.width, 8.0
    tensors[names["final"] + ".weight"] = [1.0] * width
    for token in range(vocab):
        tensors[names["embedding"] + ".weight"][token * width] = constant
        # After the last norm the number is about the root of the width.
        tensors[names["head"] + ".weight"][token * width] = likely.get(token, 0) / width ** 0.5
    float64_model.save(directory, config, tensors)
    return config
