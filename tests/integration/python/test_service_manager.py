"""What the server tells the service manager that started it (sd_notify(3)), and that it falls silent
when its engine is stuck."""

import ctypes
import os
import pathlib
import signal
import socket
import tempfile
import time
import unittest

import grpc

from secure_server import code_of
from support import request
from tlm_server import TlmServer

WATCHDOG_SECONDS = 0.4
PATIENCE_SECONDS = 60
EXIT_FORCED = 3
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WAIT_FOR_THREADS = 0x40000000  # __WALL


class Manager:
    """Listens as a service manager does."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1) if address.startswith("@") else address)
        self.environment = {"NOTIFY_SOCKET": address,
                            "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
        self.heard = []

    def close(self):
        self._socket.close()

    def listen(self, seconds):
        """The next message as a dictionary; None when none comes in that time."""
        self._socket.settimeout(seconds)
        try:
            lines = self._socket.recv(4096).decode().splitlines()
        except TimeoutError:
            return None
        self.heard.append(dict(line.split("=", 1) for line in lines))
        return self.heard[-1]

    def listen_for(self, name):
        """The next message that has this."""
        while (message := self.listen(PATIENCE_SECONDS)) is not None:
            if name in message:
                return message
        raise AssertionError(f"no {name} in {self.heard}")

    def listen_until_silent(self, seconds):
        while self.listen(seconds) is not None:
            pass


def thread_named(pid, name):
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise AssertionError(f"no thread {name}")


def ptrace(what, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(what, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def stop_thread(thread):
    """For good: until its process ends."""
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WAIT_FOR_THREADS)


def await_end_of(thread):
    """Waits until a stopped thread ends: only then can its process be reaped."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while os.waitpid(thread, WAIT_FOR_THREADS | os.WNOHANG)[0] != thread:
        if time.monotonic() > deadline:
            raise AssertionError("the stopped thread lives on")
        time.sleep(0.05)


class ServiceManagerTest(unittest.TestCase):

    def manager(self, abstract=False):
        directory = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, "notify")
        manager = Manager("@" + path if abstract else path)
        self.addCleanup(manager.close)
        return manager

    def life_of(self, manager):
        with TlmServer(environment=manager.environment) as server:
            loading = manager.listen(PATIENCE_SECONDS)
            self.assertEqual(loading["STATUS"], "loading the model")
            self.assertGreater(int(loading["EXTEND_TIMEOUT_USEC"]), 10e6)
            ready = manager.listen_for("READY")
            self.assertRegex(ready["STATUS"], r'serving "demo" on 127\.0\.0\.1:\d+$')
            for _ in range(3):
                self.assertEqual(manager.listen(WATCHDOG_SECONDS), {"WATCHDOG": "1"})
            server.terminate()
            self.assertEqual(manager.listen_for("STOPPING")["STOPPING"], "1")
            self.assertEqual(manager.listen_for("EXTEND_TIMEOUT_USEC")["STATUS"],
                             "draining: 0 calls")
            self.assertEqual(server.wait(), 0, server.log())
            manager.listen_until_silent(0.1)
        names = [name for message in manager.heard for name in message]
        self.assertEqual(names.count("READY"), 1)
        self.assertEqual(names.count("STOPPING"), 1)
        self.assertNotIn("WATCHDOG", names[names.index("STOPPING"):])

    def test_a_life(self):
        for abstract in (False, True):
            with self.subTest(abstract=abstract):
                self.life_of(self.manager(abstract))

    def test_a_missing_notify_socket_is_ignored(self):
        with TlmServer(environment={"NOTIFY_SOCKET": "/nonexistent/notify"}) as server:
            server.terminate()
            self.assertEqual(server.wait(), 0, server.log())

    def test_a_stuck_engine_is_silent_and_is_ended_by_force(self):
        manager = self.manager()
        with TlmServer("--stall_timeout=500ms", environment=manager.environment) as server:
            call = server.model.Generate(request(max_new_tokens=900), timeout=60)
            next(iter(call))
            try:
                engine = thread_named(server.pid, "engine")
                stop_thread(engine)
            except OSError as error:
                self.skipTest(f"processes may not be traced here: {error}")
            begin = time.monotonic()
            # It is silent once it has been stuck for the stall_timeout, and stays so.
            while manager.listen(2 * WATCHDOG_SECONDS + 1) is not None:
                self.assertLess(time.monotonic() - begin, PATIENCE_SECONDS)
            self.assertIn("health NOT_SERVING", server.log())
            server.terminate()
            manager.listen_for("STOPPING")
            server.signal(signal.SIGTERM)
            await_end_of(engine)
            self.assertEqual(server.wait(), EXIT_FORCED, server.log())
            self.assertIn("ended by force", server.log())
            self.assertEqual(code_of(lambda: call), grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    unittest.main()
