"""What every example does, whatever its language; run.py sets what is tested."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

import grpc

from certificates import Authority
from tlm_server import BIN_DIR, TlmServer  # first: it makes the stubs importable

from tlm.v1 import common_pb2, generate_pb2, language_model_pb2_grpc, model_info_pb2

COMMAND = []  # runs the example

PROMPT = "In the evening"
TIMEOUT = 90  # seconds


def request(max_new_tokens=60, **sampling):
    """What the examples ask for."""
    return generate_pb2.GenerateRequest(
        prompt=PROMPT, sampling=common_pb2.SamplingParams(seed=1, **sampling),
        stopping=generate_pb2.StoppingCriteria(max_new_tokens=max_new_tokens))


def text_of(server, asked):
    return "".join(event.tokens.text for event in server.model.Generate(asked, timeout=TIMEOUT))


def start(*arguments, **environment):
    return subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env={**os.environ, **environment})


def run(*arguments, **environment):
    """Exit status, standard output and standard error."""
    with start(*arguments, **environment) as process:
        output, errors = process.communicate(timeout=TIMEOUT)
        return process.returncode, output.decode(), errors.decode()


def fill(server):
    """Calls that occupy a server on which 16 sequences run and four requests wait."""
    def start_one():
        return server.model.Generate(request(900, num_sequences=16), timeout=TIMEOUT)
    running = start_one()
    next(running)
    # Of five more four wait; the other is refused, which says so.
    full = threading.Event()
    waiting = [start_one() for _ in range(5)]
    for call in waiting:
        call.add_done_callback(lambda _: full.set())
    if not full.wait(TIMEOUT):
        raise RuntimeError("the server was not to be filled")
    return [running, *waiting]


class SlowServer(TlmServer):
    """Takes as long as a processor of many years ago."""

    def __init__(self, *flags):
        super().__init__("--isa=portable", "--threads=1", *flags)


class SecureServer(TlmServer):
    """With a certificate for localhost from an authority of its own, and with API keys."""

    def __init__(self, folder):
        authority = Authority(folder / "ca")
        self.certificate = authority.certificate
        keys = folder / "keys.json"
        printed = subprocess.run([BIN_DIR / "tlm-keys", "add", f"--file={keys}", "--tenant=tests"],
                                 check=True, capture_output=True, text=True).stdout
        self.api_key = re.search(r"tlm_\w+", printed).group()
        super().__init__(*authority.issue().serve_flags(), f"--api_keys={keys}")

    @property
    def target(self):
        return super().target.replace("127.0.0.1", "localhost")

    def connect(self):
        return grpc.secure_channel(
            self.target, grpc.ssl_channel_credentials(self.certificate.read_bytes()))


class FragileServer(language_model_pb2_grpc.LanguageModelServicer):
    """Sends one token a call, and ends the n-th call with the n-th of `ends`, pairs of a code and a
    message; those after them end well."""

    def __init__(self, *ends):
        self._ends = list(ends)
        self.resumed_with = []  # the resume of each call
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        language_model_pb2_grpc.add_LanguageModelServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def ModelInfo(self, request, context):
        return model_info_pb2.ModelInfoResponse()

    def Generate(self, request, context):
        ids = list(request.resume.generated_token_ids)
        self.resumed_with.append((request.resume.fingerprint, ids))
        yield generate_pb2.GenerateResponse(started={
            "request_id": "r", "effective": {"seed": request.sampling.seed, "num_sequences": 1},
            "prompt_token_count": 3, "fingerprint": "f"})
        yield generate_pb2.GenerateResponse(tokens={
            "position": 3 + len(ids), "text": "abcdefg"[len(ids)], "tokens": [{"id": len(ids)}]})
        if self._ends:
            context.abort(*self._ends.pop(0))
        yield generate_pb2.GenerateResponse(
            finished={"reason": common_pb2.FINISH_REASON_LENGTH})
        yield generate_pb2.GenerateResponse(
            summary={"usage": {"prompt_tokens": 3, "completion_tokens": len(ids) + 1}})

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exception):
        self._server.stop(None).wait()


class ExampleTest(unittest.TestCase):
    def test_streams_a_generation(self):
        with TlmServer() as server:
            expected = text_of(server, request())
            status, output, errors = run(server.target, PROMPT)
        self.assertEqual((status, output), (0, expected + "\n"), errors)

    # The C++ example chooses its target by the prompt, so with it the other replica may die.
    def test_goes_on_where_its_replica_dies(self):
        with SlowServer() as first, SlowServer() as second:
            expected = text_of(second, request(max_new_tokens=900))
            with start(f"{first.target},{second.target}", PROMPT, "900") as process:
                output = os.read(process.stdout.fileno(), 1)
                first.kill()
                rest, errors = process.communicate(timeout=TIMEOUT)
            second.terminate()
            second.wait()
            log = second.log()
        self.assertEqual((process.returncode, (output + rest).decode()), (0, expected + "\n"),
                         errors.decode())
        self.assertEqual(len(re.findall("rpc=Generate", log)), 2, log)

    def test_goes_on_after_what_a_broken_stream_ends_with(self):
        with FragileServer((grpc.StatusCode.UNAVAILABLE, "Socket closed"),
                           (grpc.StatusCode.CANCELLED, "CANCELLED"),
                           (grpc.StatusCode.UNKNOWN, "Stream removed"),
                           (grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"),
                           ) as server:
            status, output, errors = run(server.target, PROMPT)
        self.assertEqual((status, output), (0, "abcde\n"), errors)
        self.assertEqual(server.resumed_with, [("", [])] + [
            ("f", list(range(count))) for count in range(1, 5)])

    def test_does_not_go_on_after_an_answer(self):
        for code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED):
            with self.subTest(code), FragileServer((code, "so it is")) as server:
                status, output, errors = run(server.target, PROMPT)
                self.assertEqual((status, output), (1, "a"))
                self.assertRegex(errors, rf"(?im)^{code.name}: so it is$")
                self.assertEqual(len(server.resumed_with), 1)

    def test_says_what_is_wrong_with_a_request(self):
        with TlmServer() as server:
            status, output, errors = run(server.target, "too long " * 2000)
        self.assertEqual((status, output), (1, ""))
        self.assertRegex(errors, r"(?im)^INVALID_?ARGUMENT: prompt has \d+ tokens, the limit is")
        self.assertRegex(errors, r"(?m)^field prompt: prompt has")

    def test_says_when_to_come_back(self):
        with SlowServer("--max_running_requests=16", "--max_queued_requests=4") as server:
            calls = fill(server)
            status, _, errors = run(server.target, PROMPT)
            for call in calls:
                call.cancel()
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"(?i)RESOURCE_?EXHAUSTED: ")
        self.assertRegex(errors, r"(?m)^reason QUEUE_FULL$")
        self.assertRegex(errors, r"(?m)^try again in [0-9.]+ ?(s|ms|m)")

    def test_reports_a_server_that_is_not_there(self):
        status, output, errors = run("127.0.0.1:1", PROMPT)
        self.assertEqual((status, output), (1, ""))
        self.assertRegex(errors, r"(?im)^UNAVAILABLE: ")

    def test_speaks_tls_and_shows_its_key(self):
        if not (BIN_DIR / "tlm-keys").exists():
            self.skipTest("no tlm-keys beside the server")
        with tempfile.TemporaryDirectory(prefix="tlm-test-") as folder:
            with SecureServer(pathlib.Path(folder)) as server:
                authority = str(server.certificate)
                right = run(server.target, PROMPT, TLM_CA_FILE=authority,
                            TLM_API_KEY=server.api_key)
                wrong = run(server.target, PROMPT, TLM_CA_FILE=authority,
                            TLM_API_KEY=server.api_key[:-1] + "_")
        self.assertEqual(right[0], 0, right)
        self.assertGreater(len(right[1]), 60)
        self.assertEqual(wrong[:2], (1, ""))
        self.assertRegex(wrong[2], r"(?im)^UNAUTHENTICATED: ")

    def test_shows_its_key_unencrypted_to_this_host_only(self):
        key = "tlm_ab12_s3cret"
        for targets in ("model.example:50051", "127.0.0.1:1,127.0.0.1.example:2"):
            status, output, errors = run(targets, PROMPT, TLM_API_KEY=key)
            self.assertEqual((status, output), (1, ""))
            refused = targets.rpartition(",")[2]
            self.assertIn(f"the API key would travel to {refused} unencrypted: ", errors)
            self.assertEqual(len(errors.splitlines()), 1, errors)
            self.assertNotIn(key, errors)
        with FragileServer() as server:
            local = server.target.replace("127.0.0.1", "localhost")
            for target in (server.target, local):
                status, output, errors = run(target, PROMPT, TLM_API_KEY=key)
                self.assertEqual((status, output), (0, "a\n"), errors)


if __name__ == "__main__":
    raise SystemExit("run.py runs these")
