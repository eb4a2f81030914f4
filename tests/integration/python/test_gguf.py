"""Models in GGUF files: served as from a directory, and damaged in any way refused in a line."""

import concurrent.futures
import io
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zipfile

import grpc

import gguf_writer
from gguf_writer import text_bytes
from server_process import START_SECONDS
from support import Answer, request
from tlm_server import BIN_DIR, DEMO_MODEL, SANITIZED, TlmServer

from smg.grpc.common import common_pb2
from tlm.v1 import model_info_pb2, tokenize_pb2
from vllm.grpc.engine import vllm_engine_pb2_grpc

THREADS = 4
MUTATIONS = 100 if SANITIZED else 500
# What a damaged file of 40 KB may take beside what the good one does.
MORE_BYTES = 64 << 20
MAX_LINE = 4096


class Result:
    """How a server ended: by itself, or by SIGTERM once it served."""

    def __init__(self, status, output, served, peak_bytes):
        self.status, self.output, self.served = status, output, served
        self.peak_bytes = peak_bytes
        self.lines = [line for line in output.splitlines()
                      if " warning " not in line and " info " not in line]


def run(path, *flags):
    """Starts a server with this model and ends it as soon as it serves."""
    with tempfile.TemporaryDirectory(prefix="tlm-test-") as folder:
        port, log = pathlib.Path(folder) / "port", pathlib.Path(folder) / "log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [BIN_DIR / "tlm-server", f"--model={path}", "--port=0", f"--port_file={port}",
                 "--threads=1", "--withdrawal_grace=0s", *flags],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        served, deadline = False, time.monotonic() + START_SECONDS
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if not served and port.exists():
                served = True
                process.terminate()
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        return Result(process.returncode, log.read_text(encoding="utf-8", errors="replace"),
                      served, usage.ru_maxrss * 1024)


class GgufModelTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-")))

    def write(self, name, file):
        path = self.folder / name
        path.write_bytes(file if isinstance(file, bytes) else file.bytes())
        return path

    def answers(self, model):
        """What a server with this model gives for some requests."""
        with TlmServer(f"--model={model}") as server:
            info = server.model.ModelInfo(model_info_pb2.ModelInfoRequest())
            text = "Prince Andrew's 1812 \u2014 na\u00efve,\n\n  <|endoftext|>!"
            ids = server.model.Tokenize(tokenize_pb2.TokenizeRequest(text=text)).token_ids
            answer = Answer(list(server.model.Generate(request(max_new_tokens=40, temperature=0))))
            return info, list(ids), answer.ids, answer.text

    def test_the_bundled_model_answers_as_from_its_directory(self):
        file = gguf_writer.demo_model()
        info, *answers = self.answers(DEMO_MODEL)
        gguf_info, *gguf_answers = self.answers(self.write("demo.gguf", file))
        self.assertEqual(gguf_answers, answers)
        self.assertEqual(gguf_info.identity.model_id, "demo")
        self.assertEqual(gguf_info.parameters, info.parameters)

        # The same in two files, the tensors of every second name in the other.
        parts = [gguf_writer.GgufFile(), gguf_writer.GgufFile()]
        parts[0].values = dict(file.values)
        for index, (name, tensor) in enumerate(file.tensors.items()):
            parts[index % 2].tensors[name] = tensor
        for number, part in enumerate(parts):
            part.set("split.no", "uint16", number)
            part.set("split.count", "uint16", 2)
            part.set("split.tensors.count", "int32", len(file.tensors))
        paths = [self.write(f"demo-0000{i + 1}-of-00002.gguf", part) for i, part in enumerate(parts)]
        self.assertEqual(list(self.answers(paths[0])[1:]), answers)
        refused = run(paths[1])
        self.assertEqual(refused.status, 1)
        self.assertIn(str(paths[0]), refused.lines[0])
        paths[1].unlink()
        self.assertIn(str(paths[1]), run(paths[0]).lines[0])

    def test_others_tokenize_by_the_files_made_of_it(self):
        path = self.write("demo.gguf", gguf_writer.demo_model())
        with TlmServer(f"--model={path}", "--facades=vllm") as server:
            engine = vllm_engine_pb2_grpc.VllmEngineStub(server.channel)
            archive = b"".join(chunk.data for chunk in engine.GetTokenizer(
                common_pb2.GetTokenizerRequest(), timeout=20))
        model = shutil.copytree(DEMO_MODEL, self.folder / "demo")
        (model / "tokenizer.json").unlink()
        (model / "tokenizer_config.json").unlink()
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            self.assertEqual(set(files.namelist()), {"tokenizer.json", "tokenizer_config.json"})
            files.extractall(model)
        self.assertEqual(self.answers(model)[1:], self.answers(DEMO_MODEL)[1:])
        config, original = (json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
                            for folder in (model, DEMO_MODEL))
        for key in ("chat_template", "eos_token"):
            self.assertEqual(config[key], original[key])

        # It is made of the file as it was loaded, or not at all.
        file = gguf_writer.demo_model()
        with TlmServer(f"--model={path}", "--facades=vllm") as server:
            file.set("tokenizer.chat_template", "string", "{{ messages[0].content }}")
            path.write_bytes(file.bytes())
            engine = vllm_engine_pb2_grpc.VllmEngineStub(server.channel)
            with self.assertRaises(grpc.RpcError) as caught:
                list(engine.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=20))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)


class DamagedFileTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-")))
        cls.good = gguf_writer.small_llama()
        (cls.folder / "good.gguf").write_bytes(cls.good.bytes())
        result = run(cls.folder / "good.gguf")
        assert result.served and result.status == 0, result.output
        cls.peak_bytes = result.peak_bytes

    def check_all(self, files):
        """files: (what was done, bytes of the file, words of the refusal or None if it may serve).
        The number of files that were served."""
        def one(item):
            index, (what, data, words) = item
            path = self.folder / f"{self.id()}-{index}.gguf"
            path.write_bytes(data)
            result = run(path)
            path.unlink()
            return what, path, words, result

        served = 0
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for what, path, words, result in pool.map(one, enumerate(files)):
                with self.subTest(what=what):
                    served += result.served
                    self.check(path, words, result)
        return served

    def check(self, path, words, result):
        if not SANITIZED:
            self.assertLess(result.peak_bytes, self.peak_bytes + MORE_BYTES, result.output)
        if result.served:
            self.assertIsNone(words, "a file that was to be refused was served")
            self.assertIn(result.status, (0, -signal.SIGTERM), result.output)
            return
        self.assertEqual((result.status, len(result.lines)), (1, 1), result.output)
        line = result.lines[0]
        self.assertTrue(line.startswith("tlm-server: "), line)
        self.assertLess(len(line), MAX_LINE)
        for word in (str(path), *(words or ())):
            self.assertIn(word, line)

    def test_damaged_files_are_served_or_refused_in_a_line(self):
        source = random.Random(1)
        good = self.good.bytes()
        # Every key and tensor equally often, whatever room it takes.
        places = [good.index(text_bytes(name)) for name in [*self.good.values, *self.good.tensors]]
        files = []
        for index in range(MUTATIONS):
            file = bytearray(good)
            for _ in range(1 + index % 2):
                at = max(0, source.choice(places) + source.randrange(-8, 48))
                kind = source.randrange(8)
                if kind < 3:
                    file[at] = source.randrange(256)
                elif kind < 5:
                    file[at] ^= 1 << source.randrange(8)
                elif kind == 5:
                    number = (1 << source.randrange(64)) - source.randrange(2)
                    file[at:at + 8] = struct.pack("<Q", number)
                elif kind == 6:
                    other, size = source.choice(places), source.randrange(1, 32)
                    file[at:at + size] = file[other:other + size]
                else:
                    file[at:at + source.randrange(4)] = source.randbytes(source.randrange(4))
            if index % 25 == 0:
                del file[source.randrange(len(file)):]
            files.append((f"mutation {index}", bytes(file), None))
        served = self.check_all(files)
        self.assertLess(served, MUTATIONS)
        self.assertGreater(served, 0)  # some bytes say nothing about the model
