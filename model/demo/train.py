#!/usr/bin/env python3
"""Train the demonstration model: a small Qwen3-shaped language model on one book.

The script does everything, in this order:

1. splits the corpus by bytes: 0-85 % training, 85-90 % validation, 90-100 % held out;
2. trains a byte-level BPE tokenizer on the training bytes only;
3. trains the network on the training bytes (bf16 autocast, fp32 master weights), and
   keeps the weights with the lowest loss on the validation bytes;
4. writes a Hugging Face style directory (config.json, generation_config.json,
   tokenizer.json, tokenizer_config.json, model.safetensors in bf16, train_config.json);
5. loads that directory again and measures bits per byte on the held-out bytes, which
   nothing before this step has looked at.

Usage:

    pip install -r requirements.txt
    python train.py --corpus war-and-peace.txt --out OUT --minutes 22   # a time budget
    python train.py --corpus war-and-peace.txt --out OUT --steps 631    # a step budget
    python train.py --corpus war-and-peace.txt --out OUT --evaluate-only

The defaults are the configuration of the published weights.  The learning rate follows
the progress through the budget, so any budget runs the whole schedule.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

END_OF_TEXT = "<|endoftext|>"

# The model knows no roles: a conversation is a text, a paragraph a message. Tools, calls and results
# have Hermes' markup, which the model has not learned: a constraint makes its calls valid.
CHAT_TEMPLATE = (
    "{% if tools %}<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n\n"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}<tool_response>\n{{ message.content }}\n</tool_response>\n\n"
    "{% else %}"
    "{% if message.content %}{{ message.content }}\n\n{% endif %}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>\n\n{% endfor %}"
    "{% endif %}"
    "{% endfor %}"
)

# The split pattern of the Qwen tokenizers.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# A heading opens a new document (a chapter) in the training stream.
HEADING = re.compile(r"^(?=(?:CHAPTER [IVXLC]+|BOOK [A-Z]+: .*|(?:FIRST|SECOND) EPILOGUE.*)$)", re.M)


@dataclass(frozen=True)
class ModelConfig:
    """The fields of a Qwen3 config.json that determine the network."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, half-split layout: dimension i is paired with i + head_dim / 2."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, c.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, c.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)
        self.dropout = dropout

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.self_attn(self.input_layernorm(x), cos, sin)
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(y, self.dropout, self.training)


class Decoder(nn.Module):
    def __init__(self, c: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, dropout) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.dropout = dropout
        inverse = c.rope_theta ** -(torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angle = torch.outer(torch.arange(c.max_position_embeddings).float(), inverse).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = F.dropout(self.embed_tokens(ids), self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Qwen3(nn.Module):
    """The Qwen3 decoder with a tied output head and the Hugging Face parameter names."""

    def __init__(self, c: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.model = Decoder(c, dropout)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                scale = 1 / math.sqrt(2 * c.num_hidden_layers) if last else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.model(ids), self.model.embed_tokens.weight)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log likelihood per token, in nats."""
        return F.cross_entropy(self(ids).float().flatten(0, 1), targets.flatten())


@dataclass(frozen=True)
class Corpus:
    train: bytes
    valid: bytes
    heldout: bytes
    size: int
    sha256: str


def read_corpus(path: Path) -> Corpus:
    """Split the file at 85 % and 90 % of its bytes (moved forward to a character's start)."""
    data = path.read_bytes()

    def boundary(percent: int) -> int:
        at = len(data) * percent // 100
        while at < len(data) and data[at] & 0xC0 == 0x80:
            at += 1
        return at

    a, b = boundary(85), boundary(90)
    return Corpus(data[:a], data[a:b], data[b:], len(data), hashlib.sha256(data).hexdigest())


def train_tokenizer(text: str, vocab_size: int) -> Tokenizer:
    """Byte-level BPE; its alphabet holds all 256 bytes, so every string can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def encode(tokenizer: Tokenizer, text: bytes) -> np.ndarray:
    """Plain text to token ids, checked to decode to the same bytes."""
    ids = tokenizer.encode(text.decode("utf-8")).ids
    assert tokenizer.decode(ids, skip_special_tokens=False).encode("utf-8") == text
    return np.array(ids, dtype=np.int64)


def training_stream(tokenizer: Tokenizer, text: bytes) -> np.ndarray:
    """The training text with the end-of-text token before every heading."""
    end = np.array([tokenizer.token_to_id(END_OF_TEXT)], dtype=np.int64)
    parts = [part for part in HEADING.split(text.decode("utf-8")) if part]
    return np.concatenate([x for part in parts for x in (end, encode(tokenizer, part.encode()))] + [end])


def batches(stream: np.ndarray, context: int, batch: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Endless batches of (batch, context + 1); each pass cuts the stream at a new offset."""
    while True:
        offset = int(rng.integers(context))
        starts = offset + context * rng.permutation((len(stream) - 1 - offset) // context)
        for i in range(0, len(starts) - batch + 1, batch):
            yield np.stack([stream[s:s + context + 1] for s in starts[i:i + batch]])


@torch.no_grad()
def bits_per_byte(model: Qwen3, ids: np.ndarray, first: int, n_bytes: int, context: int,
                  stride: int, device: torch.device) -> float:
    """Bits per byte of `ids`, predicted from the token `first` (end-of-text) and each other.

    Windows of `context` tokens advance by `stride`; a window scores only the tokens that no
    earlier window has scored, so all but the first `context` tokens are predicted from at
    least `context - stride` tokens before them.
    """
    was_training = model.training
    model.eval()
    inputs = torch.from_numpy(np.concatenate([[first], ids[:-1]]))
    targets = torch.from_numpy(ids)
    windows: list[tuple[int, int]] = []  # (start, first position to score)
    scored = 0
    while scored < len(ids):
        start = max(0, min(scored + stride, len(ids)) - context) if scored else 0
        windows.append((start, scored))
        scored = min(start + context, len(ids))
    nats = 0.0
    for i in range(0, len(windows), 8):
        group = windows[i:i + 8]
        length = min(context, len(ids))
        x = torch.stack([inputs[s:s + length] for s, _ in group]).to(device)
        y = torch.stack([targets[s:s + length] for s, _ in group]).to(device)
        logits = model(x).float()
        losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
        for row, (start, begin) in zip(losses, group):
            nats += float(row[begin - start:].double().sum())
    model.train(was_training)
    return nats / math.log(2) / n_bytes


@torch.no_grad()
def sample(model: Qwen3, tokenizer: Tokenizer, prompt: str, tokens: int, temperature: float,
           top_p: float, seed: int, device: torch.device) -> str:
    """Nucleus sampling without a cache: slow, and enough for an example."""
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = tokenizer.encode(prompt).ids
    for _ in range(tokens):
        window = torch.tensor([ids[-model.model.cos.shape[0]:]], device=device)
        p = torch.softmax(model(window)[0, -1].float().cpu() / temperature, -1)
        p, order = p.sort(descending=True)
        p[p.cumsum(0) - p >= top_p] = 0
        token = int(order[torch.multinomial(p, 1, generator=generator)])
        if token == end:
            break
        ids.append(token)
    return tokenizer.decode(ids)


def write_json(path: Path, value: object) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def export(out: Path, c: ModelConfig, tokenizer: Tokenizer, state: dict[str, Tensor],
           record: dict[str, object]) -> None:
    """Write the model directory; every file appears whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    end = tokenizer.token_to_id(END_OF_TEXT)
    write_json(out / "config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **asdict(c),
        "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
        "use_sliding_window": False, "rope_scaling": None, "initializer_range": 0.02,
        "bos_token_id": end, "eos_token_id": end})
    write_json(out / "generation_config.json", {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end,
        "do_sample": True, "temperature": 0.8, "top_p": 0.95})
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT, "unk_token": None, "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "model_max_length": c.max_position_embeddings,
        "chat_template": CHAT_TEMPLATE})
    write_json(out / "train_config.json", record)
    tokenizer.save(str(out / "tokenizer.json.tmp"))
    os.replace(out / "tokenizer.json.tmp", out / "tokenizer.json")
    tensors = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in state.items()}
    save_file(tensors, str(out / "model.safetensors.tmp"), metadata={"format": "pt"})
    (out / "model.safetensors.tmp").chmod(0o644)
    os.replace(out / "model.safetensors.tmp", out / "model.safetensors")


def load(out: Path, device: torch.device) -> tuple[Qwen3, Tokenizer]:
    """The exported weights (bf16 values), computed with in fp32."""
    raw = json.loads((out / "config.json").read_text())
    c = ModelConfig(**{k: raw[k] for k in ModelConfig.__dataclass_fields__})
    model = Qwen3(c)
    model.load_state_dict({k: v.float() for k, v in load_file(str(out / "model.safetensors")).items()})
    return model.to(device), Tokenizer.from_file(str(out / "tokenizer.json"))


def make_optimizers(model: Qwen3, a: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    embedding = model.model.embed_tokens.weight
    matrices = [p for p in model.parameters() if p.dim() == 2 and p is not embedding]
    norms = [p for p in model.parameters() if p.dim() == 1]
    adamw = torch.optim.AdamW(
        [{"params": [embedding], "weight_decay": a.weight_decay}, {"params": norms, "weight_decay": 0.0}],
        lr=a.lr, betas=(0.9, 0.98))
    if a.optimizer == "adamw":
        adamw.add_param_group({"params": matrices, "weight_decay": a.weight_decay})
        return [adamw]
    return [adamw, torch.optim.Muon(matrices, lr=a.lr, weight_decay=a.weight_decay, momentum=0.95,
                                    adjust_lr_fn="match_rms_adamw")]


def train(a: argparse.Namespace, c: ModelConfig, stream: np.ndarray, valid: np.ndarray,
          valid_bytes: int, end: int, device: torch.device) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Train for the budget; return the weights with the best validation loss and a record."""
    model = Qwen3(c, a.dropout).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters} parameters, {len(stream)} training tokens", flush=True)
    optimizers = make_optimizers(model, a)
    rng = np.random.default_rng(a.seed)
    stages = [(batches(stream, t, max(1, a.batch_tokens // t), rng)) for t in (a.train_context, a.context)]
    autocast = torch.autocast(device.type, torch.bfloat16) if a.autocast else contextlib.nullcontext()
    best, best_state, best_step = math.inf, {}, 0
    step, tokens, progress, last_eval, begun = 0, 0, 0.0, 0, time.monotonic()
    while True:
        elapsed = time.monotonic() - begun
        progress = step / a.steps if a.steps else elapsed / (60 * a.minutes)
        done = progress >= 1
        if done or step - last_eval >= a.eval_every:
            last_eval = step
            with autocast:
                bpb = bits_per_byte(model, valid, end, valid_bytes, a.context, a.context, device)
            if bpb < best:
                best, best_step = bpb, step
                best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
            print(f"step {step} progress {progress:.3f} tokens {tokens} seconds {elapsed:.0f} "
                  f"valid bits/byte {bpb:.4f} best {best:.4f} at {best_step}", flush=True)
            if a.checkpoint:
                torch.save(best_state, a.checkpoint)
        if done:
            break
        # Linear warm-up, then cosine to 2 % of the peak.
        warm = min(1.0, (step + 1) / a.warmup_steps)
        factor = warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = a.lr * factor
        # The last part of the run uses the full context.
        batch = torch.from_numpy(next(stages[progress >= 1 - a.long_fraction])).to(device)
        with autocast:
            loss = model.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += batch[:, 1:].numel()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {a.lr * factor:.2e} "
                  f"tokens/s {tokens / (time.monotonic() - begun):.0f}", flush=True)
    return best_state, {
        "parameters": parameters, "steps": step, "tokens_seen": tokens,
        "epochs": round(tokens / len(stream), 2), "seconds": round(time.monotonic() - begun),
        "best_step": best_step, "best_valid_bits_per_byte": round(best, 4)}


def parse_arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def numbers(**defaults: float) -> None:
        for name, default in defaults.items():
            p.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)

    p.add_argument("--corpus", type=Path, required=True, help="UTF-8 text file")
    p.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    p.add_argument("--minutes", type=float, default=22.0, help="time budget (ignored with --steps)")
    p.add_argument("--steps", type=int, default=0, help="step budget")
    numbers(threads=2, seed=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--evaluate-only", action="store_true", help="only measure and sample from --out")
    p.add_argument("--checkpoint", type=Path, help="also keep the best weights here while training")
    numbers(vocab_size=2048, hidden_size=256, intermediate_size=704, layers=6, heads=4, kv_heads=2,
            head_dim=64, context=1024)
    p.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    numbers(lr=3e-3, weight_decay=0.1, dropout=0.2, clip=1.0, warmup_steps=50, batch_tokens=8192)
    p.add_argument("--train-context", type=int, default=512, help="window length before the last part")
    p.add_argument("--long-fraction", type=float, default=0.2, help="part of the run at full context")
    p.add_argument("--eval-every", type=int, default=100, help="steps between validations")
    p.add_argument("--autocast", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--stride", type=int, default=256, help="stride of the held-out measurement")
    p.add_argument("--prompt", default='"Well, Prince,')
    return p.parse_args()


def main() -> None:
    a = parse_arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    device = torch.device(a.device)
    corpus = read_corpus(a.corpus)
    print(f"corpus {corpus.size} bytes: {len(corpus.train)} training, {len(corpus.valid)} validation, "
          f"{len(corpus.heldout)} held out", flush=True)

    if not a.evaluate_only:
        tokenizer = train_tokenizer(corpus.train.decode("utf-8"), a.vocab_size)
        c = ModelConfig(tokenizer.get_vocab_size(), a.hidden_size, a.intermediate_size, a.layers,
                        a.heads, a.kv_heads, a.head_dim, a.context)
        stream, valid = training_stream(tokenizer, corpus.train), encode(tokenizer, corpus.valid)
        end = tokenizer.token_to_id(END_OF_TEXT)
        state, result = train(a, c, stream, valid, len(corpus.valid), end, device)
        arguments = {k: v for k, v in vars(a).items()
                     if k not in ("corpus", "out", "evaluate_only", "checkpoint", "prompt")}
        export(a.out, c, tokenizer, state, {
            "corpus": {"file": a.corpus.name, "bytes": corpus.size, "sha256": corpus.sha256,
                       "training_bytes": [0, len(corpus.train)],
                       "validation_bytes": [len(corpus.train), len(corpus.train) + len(corpus.valid)],
                       "held_out_bytes": [corpus.size - len(corpus.heldout), corpus.size]},
            "training_tokens": len(stream), "arguments": arguments, "result": result,
            "torch": torch.__version__})

    model, tokenizer = load(a.out, device)
    heldout = encode(tokenizer, corpus.heldout)
    bpb = bits_per_byte(model, heldout, tokenizer.token_to_id(END_OF_TEXT), len(corpus.heldout),
                        model.model.cos.shape[0], a.stride, device)
    print(f"held-out bits per byte {bpb:.4f} ({len(heldout)} tokens, {len(corpus.heldout)} bytes, "
          f"context {model.model.cos.shape[0]}, stride {a.stride})")
    print("--- sample\n" + sample(model, tokenizer, a.prompt, 300, 0.8, 0.95, a.seed, device))


if __name__ == "__main__":
    main()
