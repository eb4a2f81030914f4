"""The model type `tlm` of lm-eval, the Language Model Evaluation Harness.

    python -m tlm_client.lm_eval run --model tlm --model_args targets=127.0.0.1:50051 --tasks ...

is lm-eval's own command line with this model type: lm-eval knows the model types of its own and
of imported modules. Programs import this module and call `lm_eval.simple_evaluate(model="tlm")`.

Texts are tokenized by the server, and contexts, continuations and windows are cut as by lm-eval's
type `hf`. Log-likelihoods come from Score, texts from Generate. The results depend neither on
`concurrency` nor on the replica that computes them.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .answers import ModelInfo
from .client import Client
from .errors import Cancelled, ResourceExhausted, TlmError, Unavailable

try:
    # lm-eval has no types, and may be missing where types are checked.
    from lm_eval import utils  # type: ignore
    from lm_eval.api.model import TemplateLM  # type: ignore
    from lm_eval.api.registry import register_model  # type: ignore
    from lm_eval.models.utils import (  # type: ignore
        handle_stop_sequences, has_bos_prefix, normalize_gen_kwargs, postprocess_generated_text)
    from tqdm import tqdm  # type: ignore
except ImportError as missing:
    raise ImportError(f"{missing}: tlm_client.lm_eval needs lm-eval 0.4.13 or a later 0.4, which "
                      "the extra `eval` of tlm-client installs") from missing

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Log-likelihood, and whether greedy decoding gives the continuation.
_Score = tuple[float, bool]
_log = logging.getLogger(__name__)

MAX_CONCURRENCY = 1024
# Texts whose tokens are kept: the contexts of several continuations are tokenized once.
_KEPT_TEXTS = 512
# Seconds before a call is repeated; doubled each time.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# The key, in lm-eval's cache, of the fingerprint of the servers whose answers it holds.
_CACHE_KEY = "tlm fingerprint"
# Tokenizers that agree on it are taken for the same.
_PROBE = "Hello, World!\n\n  It's 1812, n\u00e4mlich \u4f60\u597d \U0001f642.\tx += 1"
# Arguments of a generation that are options of Client.generate: of every one, and of samples.
_ALWAYS = ("repetition_penalty", "presence_penalty", "frequency_penalty", "min_new_tokens")
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "seed")
# Arguments of transformers, and the only values that the server has.
_FIXED = {"num_beams": 1, "num_return_sequences": 1, "use_cache": True}


@register_model("tlm")
class TlmLM(TemplateLM):  # type: ignore[misc,unused-ignore]
    """The model of one or several tlm servers.

    Calls that fail because a server is down, restarts or is overloaded are repeated. All answers
    must come from servers with one fingerprint: RuntimeError otherwise.
    """

    def __init__(self, targets: str | Sequence[str] = "127.0.0.1:50051", *, concurrency: int = 16,
                 max_length: int | None = None, max_gen_toks: int = 256,
                 tokenizer: str | None = None, trust_remote_code: bool = False,
                 prefix_token_id: int | None = None, add_bos_token: bool | None = None,
                 chat_template_args: Mapping[str, Any] | None = None,
                 enable_thinking: bool | None = None, think_end_token: str | None = None,
                 seed: int = 1234, retry_seconds: float = 300.0, tls: bool = False,
                 ca_file: str | None = None, client_certificate_file: str | None = None,
                 client_key_file: str | None = None, server_name: str | None = None,
                 batch_size: object = None, max_batch_size: object = None,
                 device: object = None) -> None:
        """targets: replicas, as a list or separated by commas. concurrency: calls at a time, 1 to
        MAX_CONCURRENCY. max_length: tokens of a context with its continuation, at most the server's
        limit, which is the default. tokenizer: the folder or the name of the model's tokenizer, for
        transformers: needed for chat templates, and for empty contexts if the tokenizer adds no
        token to a text. prefix_token_id: precedes texts without context; default: the tokenizer's
        beginning of a sequence, else its end. add_bos_token: whether texts get special tokens;
        default: as configured in the tokenizer. chat_template_args, enable_thinking: variables of
        the chat template. think_end_token: a generated text begins after its last occurrence. seed:
        of samples. retry_seconds: after this time a call that is still refused has failed. The
        environment variable TLM_API_KEY has the API key: it is no argument, because lm-eval writes
        the arguments into the results. batch_size, max_batch_size and device, which lm-eval passes,
        have no effect: the server forms its batches itself.

        Raises ValueError for wrong arguments, TlmError if no server answers."""
        super().__init__()
        _check_range("concurrency", concurrency, 1, MAX_CONCURRENCY)
        if not 0 <= retry_seconds < float("inf"):
            raise ValueError(f"retry_seconds is {retry_seconds}, expected at least 0 and finite")
        if isinstance(targets, str):
            targets = [target.strip() for target in targets.split(",")]
        self._concurrency = concurrency
        self._retry_seconds = retry_seconds
        self._seed = seed
        self._think_end_token = think_end_token
        self._add_bos_token = add_bos_token
        self._template_arguments = dict(chat_template_args or {})
        if enable_thinking is not None:
            self._template_arguments["enable_thinking"] = enable_thinking
        self._client = Client(
            targets, tls=tls, ca_file=ca_file, client_certificate_file=client_certificate_file,
            client_key_file=client_key_file, server_name=server_name,
            api_key=os.environ.get("TLM_API_KEY"))
        self._stop = threading.Event()
        self._encoded = functools.lru_cache(_KEPT_TEXTS)(self._tokenize)
        self._info = self._repeated(self._client.model_info)
        self._fingerprint = self._info.determinism.fingerprint
        limits = self._info.limits
        if not self._info.capabilities.tokenizer:
            raise ValueError(f"the model {self._info.identity.model_id} has no tokenizer")
        self.max_length = limits.max_context_tokens if max_length is None else max_length
        _check_range("max_length", self.max_length, 2, limits.max_context_tokens)
        _check_range("max_gen_toks", max_gen_toks, 1, 2**31 - 1)
        self.max_gen_toks = max_gen_toks
        if tokenizer is not None:
            self.tokenizer = _load_tokenizer(tokenizer, trust_remote_code)
            self._compare_tokenizers(tokenizer)
        self._prefix_token_id = self._find_prefix() if prefix_token_id is None else prefix_token_id
        if self._prefix_token_id is not None:
            _check_range("prefix_token_id", self._prefix_token_id, 0,
                         self._info.architecture.vocab_size - 1)

    @property
    def eot_token_id(self) -> int:
        return self.prefix_token_id if self.tokenizer is None else int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        if self._prefix_token_id is None:
            raise ValueError("the server's tokenizer does not tell which token precedes a text "
                             "without context: set tokenizer or prefix_token_id")
        return self._prefix_token_id

    @property
    def tokenizer_name(self) -> str:
        if self.tokenizer is None:
            return self._info.identity.tokenizer_sha256
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """Returns what lm-eval adds to the `config` of its results."""
        if not self._info.identity.weights_sha256:  # large files were still being hashed
            try:
                info = self._client.model_info()
                if info.determinism.fingerprint == self._fingerprint:
                    self._info = info
            except TlmError as error:
                _log.warning("the results have no SHA-256 of the weights: %s", error)
        return _description(self._info)

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Raises ValueError if lm-eval's cache has answers of servers with another fingerprint."""
        super().set_cache_hook(cache_hook)
        cache = cache_hook.dbdict
        if cache is None:
            return
        known = cache.get(_CACHE_KEY)
        if known is None and len(cache) == 0:
            cache[_CACHE_KEY] = self._fingerprint
        elif known != self._fingerprint:
            raise ValueError(
                f"the cache {cache.filename} has answers of {known or 'an unknown model'}, but the "
                f"fingerprint of the servers is {self._fingerprint}: use another cache")

    def apply_chat_template(self, chat_history: list[dict[str, str]],
                            add_generation_prompt: bool = True) -> str:
        if self.tokenizer is None:
            raise ValueError("chat templates need the argument tokenizer")

        def render(messages: list[dict[str, str]]) -> str:
            return str(self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt, **self._template_arguments))

        import jinja2  # type: ignore  # comes with lm-eval
        try:
            return render(chat_history)
        except jinja2.exceptions.TemplateError:  # of a template without the role "system"
            _log.warning("the chat template fails: it is applied without the role system")
            return render([message for message in chat_history if message["role"] != "system"])

    def tok_encode(self, string: str, add_special_tokens: bool | None = None,
                   **_: object) -> list[int]:
        if add_special_tokens is None:
            add_special_tokens = self._add_bos_token
            if self._prefix_text and has_bos_prefix(string, self._prefix_text):
                add_special_tokens = False
        return list(self._encoded(string, add_special_tokens))

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[_Score]:
        pairs = self._map(self._encode_request, [request.args for request in requests],
                          "Tokenizing inputs", disable_tqdm)
        return self._loglikelihood_tokens(
            [(request.args, *pair) for request, pair in zip(requests, pairs, strict=True)],
            disable_tqdm)

    def _loglikelihood_tokens(self, requests: list[tuple[Any, list[int], list[int]]],
                              disable_tqdm: bool = False, **_: object) -> list[_Score]:
        def done(index: int, score: _Score) -> None:
            if requests[index][0] is not None:
                self.cache_hook.add_partial("loglikelihood", requests[index][0], score)
        return self._score_all([(context, continuation) for _, context, continuation in requests],
                               "Running loglikelihood requests", disable_tqdm, done)

    def loglikelihood_rolling(self, requests: list[Any],
                              disable_tqdm: bool = False) -> list[float]:
        texts = [request.args[0] for request in requests]
        encoded = self._map(self.tok_encode, texts, "Tokenizing texts", disable_tqdm)
        windows: list[tuple[list[int], list[int]]] = []
        ranges = []  # of the windows of each text
        for ids in encoded:
            begin = len(windows)
            if ids:
                windows += map(utils.make_disjoint_window, utils.get_rolling_token_windows(
                    token_list=ids, prefix_token=self.prefix_token_id, max_seq_len=self.max_length,
                    context_len=1))
            ranges.append(range(begin, len(windows)))
        text_of = [text for text, indices in enumerate(ranges) for _ in indices]
        missing = [len(indices) for indices in ranges]
        logprobs = [0.0] * len(windows)
        sums = [0.0] * len(texts)

        def done(index: int, score: _Score) -> None:
            logprobs[index] = score[0]
            text = text_of[index]
            missing[text] -= 1
            if missing[text] == 0:
                sums[text] = sum(logprobs[i] for i in ranges[text])
                self.cache_hook.add_partial("loglikelihood_rolling", (texts[text],), sums[text])

        self._score_all(windows, "Running loglikelihood_rolling windows", disable_tqdm, done)
        return sums

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        # Repetitions of a request are samples with seeds of their own.
        repetitions: collections.Counter[str] = collections.Counter()
        jobs = []
        for request in requests:
            name = json.dumps(request.args[:2], sort_keys=True)
            seed = hashlib.sha256(f"{self._seed} {repetitions[name]} {name}".encode()).digest()[:8]
            repetitions[name] += 1
            jobs.append((request.args[0], request.args[1], int.from_bytes(seed, "little")))

        def done(index: int, text: str) -> None:
            self.cache_hook.add_partial("generate_until", requests[index].args[:2], text)
        return self._map(self._generate, jobs, "Running generate_until requests", disable_tqdm,
                         done)

    def _generate(self, job: tuple[str, Mapping[str, Any], int]) -> str:
        context, arguments, seed = job
        rest = normalize_gen_kwargs(arguments, self.max_gen_toks)
        until = handle_stop_sequences(rest.pop("until", None), eos=None)
        max_new_tokens = rest.pop("max_gen_toks")
        _check_range("max_gen_toks", max_new_tokens, 1, self.max_length - 1)
        options = _generate_options(rest, seed)
        prompt = self.tok_encode(context) or [self.prefix_token_id]
        result = self._repeated(
            self._client.generate, prompt[-(self.max_length - max_new_tokens):],
            max_new_tokens=max_new_tokens, stop_strings=[text for text in until if text],
            final_only=True, **options)
        self._check_fingerprint(result.started.fingerprint)
        return str(postprocess_generated_text(result.text, until, self._think_end_token))

    def _encode_request(self, arguments: tuple[str, str]) -> tuple[list[int], list[int]]:
        """Does what TemplateLM.loglikelihood does with one request."""
        context, continuation = arguments
        if context:
            context_ids, continuation_ids = self._encode_pair(context, continuation)
            return context_ids, continuation_ids
        ids = self.tok_encode(continuation, add_special_tokens=False)
        if ids and ids[0] == self.prefix_token_id:
            return ids[:1], ids[1:]
        return [self.prefix_token_id], ids

    def _score_all(self, pairs: Sequence[tuple[list[int], list[int]]], description: str,
                   disable: bool, done: Callable[[int, _Score], None]) -> list[_Score]:
        """Returns the scores of pairs of context and continuation. Calls `done` with the index of
        each pair whose score has come."""
        jobs = self._score_jobs(pairs)
        scores: list[_Score] = [(0.0, False)] * len(pairs)

        def keep(job: int, answers: list[_Score]) -> None:
            for index, score in zip(jobs[job][1], answers, strict=True):
                scores[index] = score
                done(index, score)

        self._map(lambda job: self._score(job[0], [pairs[index][1] for index in job[1]]), jobs,
                  description, disable, keep, [len(indices) for _, indices in jobs])
        return scores

    def _score_jobs(self, pairs: Sequence[tuple[list[int], list[int]]]
                    ) -> list[tuple[tuple[int, ...], list[int]]]:
        """Returns contexts, and the indices of the pairs that each is scored with in one call."""
        limits = self._info.limits
        jobs: list[tuple[tuple[int, ...], list[int]]] = []
        open_jobs: dict[tuple[int, ...], tuple[list[int], int]] = {}  # indices, number of tokens
        for index, (context, continuation) in enumerate(pairs):
            prompt = self._cut(context, continuation)
            own = len(prompt) + len(continuation) > limits.max_context_tokens
            indices, tokens = open_jobs.get(prompt, ([], len(prompt)))
            tokens += len(continuation)
            if (own or not indices or len(indices) >= limits.max_score_continuations
                    or tokens > limits.max_forward_tokens):
                indices, tokens = [], len(prompt) + len(continuation)
                jobs.append((prompt, indices))
            indices.append(index)
            if not own:
                open_jobs[prompt] = (indices, tokens)
        return jobs

    def _cut(self, context: list[int], continuation: list[int]) -> tuple[int, ...]:
        """Returns the end of the context that is read, as with `hf`: the last token of the
        continuation is no input, so it does not count for max_length."""
        if not context or not 1 <= len(continuation) <= self.max_length:
            raise ValueError(
                f"a request has {len(context)} tokens of context and {len(continuation)} of "
                f"continuation, expected at least 1, and 1 to max_length = {self.max_length}")
        return tuple(context[-(self.max_length + 1 - len(continuation)):])

    def _score(self, prompt: Sequence[int], continuations: list[list[int]]) -> list[_Score]:
        if len(prompt) + len(continuations[0]) > self._info.limits.max_context_tokens:
            return [self._score_full_context(prompt, continuations[0])]
        result = self._repeated(self._client.score, prompt, continuations)
        self._check_fingerprint(result.fingerprint)
        return [(score.sum_logprob, score.is_greedy) for score in result.scores]

    def _score_full_context(self, prompt: Sequence[int], continuation: list[int]) -> _Score:
        """Scores a continuation that fills the context up to its last token, which Score takes for
        an input: that token's logprob is in the last row of Forward."""
        *head, last = continuation
        logprob, is_greedy = self._score(prompt, [head])[0] if head else (0.0, True)
        result = self._repeated(self._client.forward, [[*prompt, *head]], positions="last",
                                values="log_probabilities")
        self._check_fingerprint(result.header.fingerprint)
        row = result.values[0]
        return logprob + float(row[last]), is_greedy and int(np.argmax(row)) == last

    def _tokenize(self, text: str, add_special_tokens: bool | None) -> tuple[int, ...]:
        return tuple(self._repeated(self._client.tokenize, text,
                                    add_special_tokens=add_special_tokens).token_ids)

    @functools.cached_property
    def _prefix_text(self) -> str:
        if self._prefix_token_id is None:
            return ""
        return str(self._repeated(self._client.detokenize, [self._prefix_token_id],
                                  skip_special_tokens=False).text)

    def _find_prefix(self) -> int | None:
        if self.tokenizer is not None:
            own = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
            return next((token for token in own if token is not None), None)
        added = self._tokenize("", None)
        return added[0] if added else None

    def _compare_tokenizers(self, name: str) -> None:
        """Raises ValueError if the tokenizer is not the server's."""
        own = self.tokenizer.encode(_PROBE, add_special_tokens=False)
        served = list(self._tokenize(_PROBE, False))
        if own != served:
            raise ValueError(f"the tokenizer {name} is not the server's: of {_PROBE!r} it makes "
                             f"{own}, the server makes {served}")

    def _check_fingerprint(self, fingerprint: str) -> None:
        if fingerprint != self._fingerprint:
            raise RuntimeError(
                f"an answer is of a server with the fingerprint {fingerprint}, the first answers "
                f"were of {self._fingerprint}: all targets must serve one model in one way")

    def _repeated(self, call: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Calls until there is an answer, or the server has refused for retry_seconds."""
        deadline = time.monotonic() + self._retry_seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                return call(*arguments, **options)
            except (Unavailable, Cancelled, ResourceExhausted) as error:
                if isinstance(error, ResourceExhausted) and error.retry_delay is None:
                    raise  # too large
                wait = max(pause, error.retry_delay or 0.0)
                if time.monotonic() + wait > deadline or self._stop.wait(wait):
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _map(self, function: Callable[[_Item], _Result], items: Sequence[_Item], description: str,
             disable: bool, done: Callable[[int, _Result], None] = lambda index, result: None,
             sizes: Iterable[int] | None = None) -> list[_Result]:
        """Returns the function's results, with a progress bar. Calls it in `concurrency` threads,
        and `done` in this one, in the order in which results come. If a call fails, waits for those
        that run and starts no more."""
        weights = [1] * len(items) if sizes is None else list(sizes)
        results: dict[int, _Result] = {}
        self._stop = threading.Event()
        with (tqdm(total=sum(weights), desc=description, disable=disable) as bar,
              concurrent.futures.ThreadPoolExecutor(self._concurrency) as pool):
            futures = {pool.submit(function, item): index for index, item in enumerate(items)}
            try:
                for future in concurrent.futures.as_completed(futures):
                    index = futures[future]
                    results[index] = future.result()
                    done(index, results[index])
                    bar.update(weights[index])
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                for future, index in futures.items():  # their results are not lost
                    if (index not in results and not future.cancelled()
                            and future.exception() is None):
                        done(index, future.result())
                raise
        return [results[index] for index in range(len(items))]


def _check_range(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}, expected {low} to {high}")


def _generate_options(arguments: dict[str, Any], seed: int) -> dict[str, Any]:
    """Returns the options of Client.generate. ValueError for an argument that it does not have."""
    rest = dict(arguments)
    sample = bool(rest.pop("do_sample", False))
    for name, value in _FIXED.items():
        if rest.pop(name, value) != value:
            raise ValueError(f"generation_kwargs.{name} is {arguments[name]!r}, expected {value!r}")
    options = {name: rest.pop(name) for name in _ALWAYS if name in rest}
    sampling = {name: rest.pop(name) for name in _SAMPLING if name in rest}
    if rest:
        raise ValueError(f"generation_kwargs has {', '.join(sorted(rest))}, which tlm does not "
                         f"know; it knows {', '.join((*_ALWAYS, *_SAMPLING, *_FIXED))}")
    return options | ({"seed": seed} | sampling if sample else {"temperature": 0.0})


def _load_tokenizer(name: str, trust_remote_code: bool) -> Any:
    try:
        from transformers import AutoTokenizer  # type: ignore
    except ImportError as error:
        raise ImportError(f"{error}: the argument tokenizer needs transformers") from error
    return AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)


def _description(info: ModelInfo) -> dict[str, Any]:
    identity, memory = info.identity, info.memory
    return {
        "model_id": identity.model_id, "model_num_parameters": info.parameters.total,
        "model_dtype": "+".join(weights.type for weights in memory.weights),
        "kv_cache_dtype": memory.kv_type, "fingerprint": info.determinism.fingerprint,
        "weights_sha256": identity.weights_sha256, "tokenizer_sha256": identity.tokenizer_sha256,
        "server_version": identity.server_version, "server_build_id": identity.build_id,
        "backend": identity.backend, "device_name": identity.device_name}


def main() -> None:
    """Runs lm-eval's command line."""
    from lm_eval.__main__ import cli_evaluate  # type: ignore
    cli_evaluate()


if __name__ == "__main__":
    main()
