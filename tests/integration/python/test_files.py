"""Files that are not what they should be: no files, other than a moment ago, closed or full."""

import contextlib
import functools
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import float64_model
import gguf_writer
from secure_server import eventually, tlm_keys
from server_process import ServerProcess
from support import Answer, request, request_of_ids
from tlm_server import BIN_DIR, DEMO_MODEL, SANITIZED, TlmServer, run_server

from tlm.v1 import model_info_pb2

# 200 MB, nine tenths of it the embedding and the head.
LARGE = {"model_type": "cs336", "vocab_size": 1 << 15, "context_length": 1024, "d_model": 768,
         "num_layers": 2, "num_heads": 8, "d_ff": 1024, "rope_theta": 10000.0}
SMALL = LARGE | {"vocab_size": 50, "d_model": 16, "d_ff": 24}


def write_zeros(folder, config):
    """A model whose weights are zeros, which take no room on the disk."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    header, offset = {}, 0
    for name, shape in float64_model.shapes(float64_model.ConfigFields(config)).items():
        end = offset + 4 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return path


class FolderTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="tlm-test-")))

    def assert_refused(self, *words, flags=(), model=None, preexec_fn=None):
        """One line with all of these words, and status 1."""
        status, output = run_server(f"--model={model or self.folder}", "--port=0", *flags,
                                    preexec_fn=preexec_fn)
        lines = [line for line in output.splitlines() if " warning " not in line]
        self.assertEqual((status, len(lines)), (1, 1), output)
        self.assertTrue(lines[0].startswith("tlm-server: "), lines)
        for word in words:
            self.assertIn(str(word), lines[0])
        return lines[0]


class ModelFilesTest(FolderTest):

    def test_pipes_sockets_and_devices_are_refused(self):
        files = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                 "chat_template.jinja", "model.safetensors"]
        for name in files:
            for kind in ("pipe", "socket", "device"):
                with self.subTest(name=name, kind=kind), tempfile.TemporaryDirectory() as folder:
                    model = shutil.copytree(DEMO_MODEL, pathlib.Path(folder) / "model")
                    path = model / name
                    path.unlink(missing_ok=True)
                    if kind == "pipe":
                        os.mkfifo(path)
                    elif kind == "device":
                        path.symlink_to("/dev/zero")
                    else:
                        with socket.socket(socket.AF_UNIX) as listener:
                            listener.bind(str(path))
                    self.assert_refused(path, "is not a regular file", model=model)

    def test_an_index_or_a_shard_that_is_a_pipe_is_refused(self):
        (self.folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        index = self.folder / "model.safetensors.index.json"
        os.mkfifo(index)
        self.assert_refused(index, "is not a regular file")
        index.unlink()
        index.write_text(json.dumps({"weight_map": {"x": "model-1.safetensors"}}), encoding="utf-8")
        os.mkfifo(self.folder / "model-1.safetensors")
        self.assert_refused(self.folder / "model-1.safetensors", "is not a regular file")

    def test_links_to_files_are_served(self):
        for path in DEMO_MODEL.iterdir():
            (self.folder / path.name).symlink_to(path)
        with TlmServer(f"--model={self.folder}") as server:
            answer = Answer(list(server.model.Generate(request(max_new_tokens=1))))
            self.assertEqual(len(answer.ids), 1)

    def test_what_is_no_directory_is_told_apart(self):
        path = write_zeros(self.folder, SMALL)
        self.assert_refused("/nonexistent", "no such directory", model="/nonexistent")
        for name in ("Qwen/Qwen3-0.6B", "hf://Qwen/Qwen3-0.6B"):
            self.assert_refused(
                f"--model={name}: ", "hf/bin/pip install huggingface_hub`", "*.safetensors",
                "`hf/bin/hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B`", model=name)
        self.assert_refused(path, "is a file", "directory", model=path)

    def test_a_busy_port_hides_no_other_fault(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = f"--port={taken.getsockname()[1]}"
            self.assert_refused("no such directory", model="/nonexistent", flags=[port])
            self.assert_refused("--max_context is 100000", model=DEMO_MODEL,
                                flags=[port, "--max_context=100000"])
            self.assert_refused("--port_file", model=DEMO_MODEL,
                                flags=[port, "--port_file=/dev/full"])
            self.assert_refused("Address already in use", model=DEMO_MODEL, flags=[port])

    def test_a_line_is_utf_8_whatever_a_file_or_a_flag_holds(self):
        bad = b"\xffz\xc3\x1b[31m\x9b\n\xe6\xbc\xa2"
        shown = "\ufffdz\ufffd?[31m\ufffd"  # then a ? or a space, and the character
        file = gguf_writer.GgufFile()
        file.set("general.architecture", "string", bad)
        model = self.folder / "model.gguf"
        model.write_bytes(file.bytes())
        self.assertIn(shown + "?\u6f22", self.assert_refused(model, model=model))
        folder = os.fsencode(self.folder) + b"/" + bad
        self.assertIn(shown + " \u6f22", self.assert_refused(model=os.fsdecode(folder)))
        for flag in ("--backend=", "--log_level=", "--", "--flagfile="):
            with self.subTest(flag=flag):
                status, output = run_server(f"--model={DEMO_MODEL}", os.fsdecode(flag.encode() + bad))
                self.assertEqual((status, output.count("\n")), (2, 1), output)
                self.assertIn(shown, output)


class ChangingFilesTest(FolderTest):

    def test_weights_that_shrink_at_any_moment_of_the_load_end_the_start_in_a_line(self):
        path = write_zeros(self.folder, LARGE)
        size = path.stat().st_size
        refused = 0
        for step in range(12):
            os.truncate(path, size)
            server = ServerProcess(BIN_DIR / "tlm-server", f"--model={self.folder}")
            with self.subTest(step=step), contextlib.closing(server):
                server.launch()
                time.sleep(0.02 * step)  # the moment; none is wrong
                os.truncate(path, size // 3)
                try:
                    server.await_port("data")
                except RuntimeError:
                    refused += 1
                    self.assertEqual(server.wait(), 1, server.log())
                    self.assertIn(f"tlm-server: {path}: ", server.log())
                else:  # too late: it had what it needs
                    server.terminate()
                    self.assertEqual(server.wait(), 0, server.log())
        self.assertGreater(refused, 0)

    def test_weights_that_shrink_while_they_are_hashed_cost_the_hash_alone(self):
        path = write_zeros(self.folder, LARGE)
        with TlmServer(f"--model={self.folder}") as server:
            info = model_info_pb2.ModelInfoRequest()
            stream = server.model.Generate(request_of_ids([1, 2, 3], 20, seed=1))
            os.truncate(path, 4096)
            before = Answer(list(stream))
            # It may have had the hash by then.
            self.assertTrue(eventually(
                lambda: server.model.ModelInfo(info).identity.weights_sha256 or
                f"no SHA-256 of the weights: {path}: changed" in server.log()), server.log())
            after = Answer(list(server.model.Generate(request_of_ids([1, 2, 3], 20, seed=1))))
            self.assertEqual(after.ids, before.ids)
            self.assertEqual(after.started.fingerprint, before.started.fingerprint)
            server.terminate()
            self.assertEqual(server.wait(), 0, server.log())


class LimitsTest(FolderTest):

    @unittest.skipIf(SANITIZED, "sanitizers take terabytes of addresses")
    def test_too_little_memory_is_told_in_a_line(self):
        for limit, kilobytes in ((resource.RLIMIT_AS, 150_000), (resource.RLIMIT_AS, 250_000),
                                 (resource.RLIMIT_AS, 400_000), (resource.RLIMIT_AS, 600_000),
                                 (resource.RLIMIT_DATA, 20_000), (resource.RLIMIT_DATA, 100_000)):
            with self.subTest(limit=limit, kilobytes=kilobytes):
                value = (kilobytes << 10, kilobytes << 10)
                self.assert_refused(
                    model=DEMO_MODEL, flags=["--threads=2"],
                    preexec_fn=functools.partial(resource.setrlimit, limit, value))

    def test_too_few_files_are_told_in_a_line(self):
        for files in (4, 6, 8, 16, 31):
            with self.subTest(files=files):
                self.assert_refused(
                    f"the limit of open files is {files} (ulimit -n), at least 32 are needed",
                    model=DEMO_MODEL, preexec_fn=functools.partial(
                        resource.setrlimit, resource.RLIMIT_NOFILE, (files, files)))
        least = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (32, 32))
        with TlmServer("--max_connections=1", preexec_fn=least) as server:
            self.assertEqual(len(Answer(list(server.model.Generate(request(max_new_tokens=1)))).ids),
                             1)

    def test_an_end_that_cannot_be_told_has_a_status_of_its_own(self):
        """A log and a port file that may not grow at all."""
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
        for flags in ((f"--model={DEMO_MODEL}", f"--port_file={self.folder / 'port'}"),
                      ("--no_such_flag",), ("--model=/nonexistent",), ("--threads=x",)):
            with self.subTest(flags=flags), open(self.folder / "log", "wb") as log:
                done = subprocess.run([BIN_DIR / "tlm-server", "--port=0", *flags], check=False,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      timeout=60, preexec_fn=limit)
                self.assertEqual(done.returncode, 4)
                self.assertEqual(os.stat(log.fileno()).st_size, 0)

    def test_a_log_that_may_not_grow_ends_nothing(self):
        most = 4096
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
        with TlmServer(preexec_fn=limit) as server:
            for _ in range(40):
                list(server.model.Generate(request(max_new_tokens=1)))
            self.assertLessEqual(len(server.log()), most)
            server.terminate()
            self.assertEqual(server.wait(), 0)

    def test_closed_descriptors_are_taken_by_no_socket(self):
        def close_all():
            for number in range(3):
                os.close(number)

        with TlmServer(preexec_fn=close_all) as server:
            for number in range(3):
                self.assertEqual(os.readlink(f"/proc/{server.pid}/fd/{number}"), "/dev/null")
            server.terminate()
            self.assertEqual(server.wait(), 0)


class KeysTest(FolderTest):

    def setUp(self):
        super().setUp()
        self.file = self.folder / "keys.json"

    def run_keys(self, *arguments, **how):
        return subprocess.run([BIN_DIR / "tlm-keys", *arguments, f"--file={self.file}"],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False, **how)

    def test_a_key_that_cannot_be_shown_changes_nothing(self):
        key = tlm_keys("add", "--tenant=a", f"--file={self.file}")
        before = self.file.read_bytes()
        identity = f"--id={key.split('_')[1]}"
        reader, writer = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, writer)
        with open("/dev/full", "w", encoding="utf-8") as full:
            for arguments in (["add", "--tenant=b"], ["rotate", identity]):
                for how in ({"stdout": full}, {"stdout": writer},
                            {"preexec_fn": lambda: os.close(1)}):
                    done = self.run_keys(*arguments, **how)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn("cannot write to the standard output", done.stderr)
                    self.assertEqual(self.file.read_bytes(), before)
        self.assertEqual(list(self.folder.iterdir()), [self.file])


if __name__ == "__main__":
    unittest.main()
