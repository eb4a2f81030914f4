"""Mixed traffic: what clients do, what they do wrong, and how they leave."""

import collections
import contextlib
import random
import socket
import threading
import time

import grpc

from soak_server import NARROW
from support import request, request_of_ids

from grpc.health.v1 import health_pb2, health_pb2_grpc
from tlm.v1 import (admin_pb2, common_pb2, forward_pb2, generate_pb2, language_model_pb2_grpc,
                    model_info_pb2, score_pb2, tokenize_pb2, verify_pb2)

Code = grpc.StatusCode
VOCABULARY = 2048
# What a call may end with beside OK, whatever it is: the queue was full, or an admin flushed.
ALWAYS = {Code.OK, Code.RESOURCE_EXHAUSTED}
CALL_SECONDS = 120


class Worker:
    """One client after the other, on a connection that it changes now and then."""

    def __init__(self, server, seed):
        self._server = server
        self._random = random.Random(seed)
        self._channel = None
        self._name = f"soak-{seed}"
        self._requests = 0
        self.codes = collections.Counter()  # by what was done and the code it ended with
        self.unexpected = []
        self._expected_ids = None
        self._actions = [
            (20, self.generate), (8, self.generate_outputs), (4, self.generate_long),
            (4, self.generate_chat), (6, self.resume), (6, self.forward), (6, self.score),
            (4, self.verify), (5, self.information), (6, self.tokenize), (10, self.cancel),
            (8, self.deadline), (8, self.bad_request), (1, self.oversized),
            (4, self.drop_connection), (3, self.slow_reader), (2, self.garbage), (3, self.abort),
            (1, self.flush), (2, self.reconnect), (2, self.same_again), (1, self.scrape)]
        if server.secure:
            self._actions.append((3, self.wrong_key))

    def run(self, stop):
        """Until `stop` is set; closes what it opened."""
        self.reconnect()
        weights = [weight for weight, _ in self._actions]
        while not stop.is_set():
            action = self._random.choices(self._actions, weights)[0][1]
            try:
                action()
            except grpc.RpcError as error:
                self._note(action.__name__, error, ALWAYS)
            except Exception as error:  # pylint: disable=broad-except
                self.unexpected.append(f"{action.__name__}: {type(error).__name__}: {error}")
        self._channel.close()

    # What goes well.

    def generate(self):
        sampled = {"temperature": 0.9, "top_p": 0.95, "seed": self._random.getrandbits(64)}
        greedy = {"temperature": 0.0}
        asked = request_of_ids(self._prompt(), self._random.choice([1, 8, 40]),
                               **self._random.choice([sampled, greedy]))
        asked.output.top_logprobs = self._random.choice([0, 0, 5])
        asked.output.prompt_logprobs = self._random.random() < 0.1
        asked.cache.bypass_prefix_cache = self._random.random() < 0.2
        asked.scheduling.priority = self._random.randrange(3)
        self._stream("generate", self._model.Generate, asked)

    def generate_outputs(self):
        asked = request(max_new_tokens=24, temperature=1.0, num_sequences=3)
        asked.stopping.stop_strings.append("zebra")
        self._stream("generate_outputs", self._model.Generate, asked)

    def generate_long(self):
        self._stream("generate_long", self._model.Generate,
                     request_of_ids(self._prompt(300), 500, temperature=0.8))

    def generate_chat(self):
        chat = generate_pb2.ChatInput()
        chat.messages.add(role="user", content="Tell me about the sea. \u00e4\U0001f642")
        asked = request(max_new_tokens=12)
        asked.chat.CopyFrom(chat)
        self._stream("generate_chat", self._model.Generate, asked)

    def resume(self):
        """Goes on where a first stream was left; it must end as the whole would."""
        asked = request_of_ids(self._prompt(), 20, temperature=1.0,
                               seed=self._random.getrandbits(64))
        whole = self._stream("resume", self._model.Generate, asked)
        if whole is None:
            return
        ids = ids_of(whole)
        have = self._random.randrange(1, len(ids))
        asked.resume.generated_token_ids.extend(ids[:have])
        asked.resume.fingerprint = whole[0].started.fingerprint
        rest = self._stream("resume", self._model.Generate, asked)
        if rest is not None and ids_of(rest) != ids[have:]:
            self.unexpected.append(f"resume: {ids_of(rest)} follow {ids[:have]}, not {ids[have:]}")

    def verify(self):
        """The server's own tokens are verified; one that is not is found."""
        asked = request_of_ids(self._prompt(), 20, temperature=1.0,
                               seed=self._random.getrandbits(64))
        whole = self._stream("verify", self._model.Generate, asked)
        if whole is None:
            return
        claim = verify_pb2.VerifyRequest(request=asked, claimed_token_ids=ids_of(whole))
        expected = len(claim.claimed_token_ids)
        if self._random.random() < 0.5:
            expected = self._random.randrange(expected)
            claim.claimed_token_ids[expected] ^= 1
        answer = self._unary("verify", self._model.Verify, claim)
        if answer is not None and answer.verified_token_count != expected:
            self.unexpected.append(f"verify: {answer}, not {expected} of {claim}")

    def same_again(self):
        """A request whose answer must be the same as long as the server runs."""
        events = self._stream("same_again", self._model.Generate,
                              request_of_ids(range(1, 200), 30, temperature=1.0, seed=3))
        if events is None:
            return
        if self._expected_ids not in (None, ids_of(events)):
            self.unexpected.append(f"same_again: {ids_of(events)}, not {self._expected_ids}")
        self._expected_ids = ids_of(events)

    def forward(self):
        ids = common_pb2.TokenIds(ids=self._prompt())
        asked = forward_pb2.ForwardRequest(sequences=[ids, ids])
        if self._random.random() < 0.2:
            asked.all = True
        self._stream("forward", self._model.Forward, asked)

    def score(self):
        asked = score_pb2.ScoreRequest()
        asked.prompt_token_ids.ids.extend(self._prompt())
        for _ in range(3):
            asked.continuations.add().token_ids.ids.extend(self._prompt(10))
        self._unary("score", self._model.Score, asked)

    def information(self):
        self._unary("information", self._model.ModelInfo,
                    model_info_pb2.ModelInfoRequest())
        self._unary("information", health_pb2_grpc.HealthStub(self._channel).Check,
                    health_pb2.HealthCheckRequest())

    def tokenize(self):
        text = "".join(chr(self._random.choice([32, 97, 0xe4, 0x4e2d, 0x1f642]))
                       for _ in range(self._random.randrange(1, 400)))
        answer = self._unary("tokenize", self._model.Tokenize,
                             tokenize_pb2.TokenizeRequest(text=text, add_special_tokens=False))
        if answer is None:
            return
        back = self._unary("tokenize", self._model.Detokenize,
                           tokenize_pb2.DetokenizeRequest(token_ids=answer.token_ids))
        if back is not None and back.text != text:
            self.unexpected.append(f"tokenize: {text!r} came back as {back.text!r}")

    # What goes wrong.

    def cancel(self):
        asked = request_of_ids(self._prompt(), 400, temperature=1.0)
        call = self._model.Generate(asked, timeout=CALL_SECONDS)
        for _ in range(self._random.choice([0, 0, 1, 3])):
            next(call, None)
        call.cancel()
        self._note("cancel", call, ALWAYS | {Code.CANCELLED})

    def deadline(self):
        asked = request_of_ids(self._prompt(), 900, temperature=1.0)
        seconds = self._random.choice([0.001, 0.01, 0.05, 0.3])
        self._stream("deadline", self._model.Generate, asked, ALWAYS | {Code.DEADLINE_EXCEEDED},
                     timeout=seconds)

    def bad_request(self):
        bad = self._random.choice([
            generate_pb2.GenerateRequest(),
            request_of_ids([VOCABULARY * 1000]),
            request(temperature=-1.0),
            request(top_p=7.0),
            request(max_new_tokens=0),
            request("x " * 20000),
            generate_pb2.GenerateRequest(prompt="x", model="none"),
            generate_pb2.GenerateRequest(prompt="x", regex="(a"),
            generate_pb2.GenerateRequest(
                prompt="x", resume={"generated_token_ids": [1], "fingerprint": "stale"})])
        codes = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}
        self._stream("bad_request", self._model.Generate, bad, codes)

    def oversized(self):
        asked = generate_pb2.GenerateRequest(prompt="x" * (9 << 20))
        self._stream("oversized", self._model.Generate, asked, {Code.RESOURCE_EXHAUSTED})

    def wrong_key(self):
        with contextlib.closing(self._server.connect(key="tlm_no_key")) as channel:
            self._unary("wrong_key", language_model_pb2_grpc.LanguageModelStub(channel).ModelInfo,
                        model_info_pb2.ModelInfoRequest(), {Code.UNAUTHENTICATED})

    # How clients leave.

    def reconnect(self):
        if self._channel is not None:
            self._channel.close()
        self._channel = self._server.connect()
        self._model = language_model_pb2_grpc.LanguageModelStub(self._channel)

    def drop_connection(self):
        """Goes away in the middle of streams."""
        channel = self._server.connect()
        model = language_model_pb2_grpc.LanguageModelStub(channel)
        calls = [model.Generate(request_of_ids(self._prompt(), 900, temperature=1.0),
                                timeout=CALL_SECONDS) for _ in range(3)]
        with contextlib.suppress(grpc.RpcError):
            next(calls[0], None)
        channel.close()
        for call in calls:
            self._note("drop_connection", call, ALWAYS | {Code.CANCELLED})

    def slow_reader(self):
        """Reads a little, waits, and leaves or reads the rest."""
        with contextlib.closing(self._server.connect(NARROW)) as channel:
            asked = request_of_ids(self._prompt(), 700, temperature=1.0)
            asked.output.top_logprobs = 20
            call = language_model_pb2_grpc.LanguageModelStub(channel).Generate(
                asked, timeout=CALL_SECONDS)
            try:
                for _ in range(10):
                    next(call, None)
                    time.sleep(0.1)
                if self._random.random() < 0.5:
                    call.cancel()
                for _ in call:
                    pass
            except grpc.RpcError:
                pass
            self._note("slow_reader", call, ALWAYS | {Code.CANCELLED})

    def garbage(self):
        """Speaks no HTTP/2, or stops in the middle of it."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        said = self._random.choice([
            b"", b"GET / HTTP/1.1\r\n\r\n", preface[:10], preface, preface + b"\0\0\4\4\0",
            self._random.randbytes(200), preface + self._random.randbytes(200)])
        host, port = self._server.target.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(said)
                connection.settimeout(0.2)
                connection.recv(1000)
        self.codes[("garbage", "sent")] += 1

    # What administrators do.

    def abort(self):
        asked = request_of_ids(self._prompt(), 900, temperature=1.0)
        self._requests += 1
        asked.request_id = f"{self._name}-{self._requests}"
        call = self._model.Generate(asked, timeout=CALL_SECONDS)
        next(call, None)
        self._server.admin.Abort(admin_pb2.AbortRequest(request_ids=[asked.request_id]),
                                 timeout=CALL_SECONDS)
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        self._note("abort", call, ALWAYS | {Code.ABORTED})

    def flush(self):
        self._unary("flush", self._server.admin.FlushPrefixCache,
                    admin_pb2.FlushPrefixCacheRequest())
        self._unary("flush", self._server.admin.GetLoad, admin_pb2.GetLoadRequest())
        self._unary("flush", self._server.admin.GetConfig, admin_pb2.GetConfigRequest())

    def scrape(self):
        if not self._server.metrics():
            self.unexpected.append("scrape: no metrics")
        self.codes[("scrape", "OK")] += 1

    # Parts.

    def _prompt(self, longest=60):
        """Some begin alike."""
        length = self._random.randrange(1, longest)
        if self._random.random() < 0.5:
            return list(range(1, 1 + length))
        return [self._random.randrange(1, VOCABULARY) for _ in range(length)]

    def _stream(self, name, method, asked, codes=None, timeout=CALL_SECONDS):
        """The events of a call that ends well; else None."""
        call = method(asked, timeout=timeout)
        try:
            events = list(call)
        except grpc.RpcError:
            events = None
        self._note(name, call, ALWAYS if codes is None else codes)
        return events

    def _unary(self, name, method, asked, codes=None):
        answer, call = None, None
        try:
            answer, call = method.with_call(asked, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            call = error
        self._note(name, call, ALWAYS if codes is None else codes)
        return answer

    def _note(self, name, call, codes):
        code = call.code()
        self.codes[(name, code.name)] += 1
        if code not in codes:
            self.unexpected.append(f"{name}: {code.name}: {call.details()}")


def ids_of(events):
    return [token.id for event in events if event.HasField("tokens")
            for token in event.tokens.tokens]


class Traffic:
    """Workers on threads of their own. A context manager: on leaving they have ended."""

    def __init__(self, server, workers):
        self._stop = threading.Event()
        self.workers = [Worker(server, seed) for seed in range(workers)]
        self._threads = [threading.Thread(target=worker.run, args=(self._stop,))
                         for worker in self.workers]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def codes(self):
        return sum((worker.codes for worker in self.workers), collections.Counter())

    def unexpected(self):
        return [text for worker in self.workers for text in worker.unexpected]
