"""A tlm-server process, for tests and measurements in Python. Needs the standard library only."""

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time

START_SECONDS = 60
STOP_SECONDS = 60


class ServerProcess:
    """Starts tlm-server on free ports and ends it: with `with`, or with start() and close().

    A restarted server has the ports of its first start. Not thread-safe.
    """

    def __init__(self, program, *flags, ports=(), start_seconds=START_SECONDS, prefix=(),
                 environment=None, preexec_fn=None, terminal=True):
        """flags: they overrule the flags that are set here. ports: "admin" and "metrics", which are
        opened next to the data port. prefix: a command that runs the program. environment: further
        variables. preexec_fn: see subprocess.Popen. terminal: whether it keeps the terminal of the
        tests, if there is one."""
        self._folder = tempfile.TemporaryDirectory(prefix="tlm-test-")
        self.folder = pathlib.Path(self._folder.name)
        self._command, self._flags = [*prefix, program], flags
        self._start_seconds = start_seconds
        # A port's flag, its file and its number, the data port's first.
        self._port_files = {name: self.folder / ("port" if name == "data" else f"port.{name}")
                            for name in ("data", *ports)}
        self._ports = dict.fromkeys(self._port_files, 0)
        self._options = {
            "stdin": subprocess.DEVNULL,
            "env": None if environment is None else os.environ | environment,
            "preexec_fn": preexec_fn,
            "start_new_session": not terminal}
        self._process = None

    def keep_ports(self):
        """Reserves ports before the first start that are still free at a restart."""
        self._ports = dict(zip(self._ports, free_ports(len(self._ports)), strict=True))

    def start(self):
        """Returns when the server serves. RuntimeError with its log if it does not."""
        self.launch()
        # The server writes this port last.
        self.await_port("data")

    def launch(self):
        """Starts the process and returns at once."""
        for file in self._port_files.values():
            file.unlink(missing_ok=True)
        flags = [f"--port_file={self._port_files['data']}"]
        for name, port in self._ports.items():
            flags.append(f"--port={port}" if name == "data" else f"--{name}_port={port}")
        self._begin = time.monotonic()
        with open(self._log_file, "ab") as log:
            self._process = subprocess.Popen([*self._command, *flags, *self._flags], stdout=log,
                                             stderr=log, **self._options)

    def await_port(self, name):
        """Returns when the server has named this port; the numbers of all ports that it has named
        are then known. RuntimeError with its log if it does not."""
        while not read(self._port_files[name]):
            if self._process.poll() is not None:
                raise RuntimeError(f"tlm-server ended with {self._process.returncode}:\n{self.log()}")
            if time.monotonic() > self._begin + self._start_seconds:
                raise RuntimeError(
                    f"tlm-server named no port in {self._start_seconds} s:\n{self.log()}")
            time.sleep(0.001)
        self.ready_seconds = time.monotonic() - self._begin
        for other, file in self._port_files.items():
            if text := read(file):
                self._ports[other] = int(text)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def pid(self):
        return self._process.pid

    @property
    def target(self):
        return self.target_of("data")

    def port_of(self, name):
        return self._ports[name]

    def target_of(self, name):
        """Returns the address of a port: "data", or one of `ports`."""
        return f"127.0.0.1:{self._ports[name]}"

    def port_file_of(self, name):
        return self._port_files[name]

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def signal(self, number):
        self._process.send_signal(number)

    @contextlib.contextmanager
    def paused(self):
        """Inside, no thread of the process runs."""
        self.pause()
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def pause(self):
        """Stops the process until SIGCONT: returns when its last thread has stopped, which the
        signal does not wait for."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def terminate(self):
        """Sends SIGTERM and returns at once."""
        self.signal(signal.SIGTERM)

    def kill(self):
        """Sends SIGKILL and waits for the end."""
        self._process.kill()
        self._process.wait()

    def wait(self):
        """Waits for the end of the process and returns its exit status."""
        return self._process.wait(STOP_SECONDS)

    def close(self):
        """Ends the process, by force if it does not end by itself."""
        if self.is_running():
            self.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.kill()
        self._folder.cleanup()

    def log(self):
        """Returns everything that the server has written so far, over all its starts."""
        return self._log_file.read_text(encoding="utf-8")

    @property
    def _log_file(self):
        return self.folder / "log"


def free_ports(count):
    """Ports that no program listens on, and that the system gives to no program that asks for any
    port: those of a connection or of another test."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    ports = []
    with contextlib.ExitStack() as taken:
        while len(ports) < count:
            listener = taken.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", random.randrange(first // 2, first)))
                ports.append(listener.getsockname()[1])
    return ports


def free_port():
    return free_ports(1)[0]


def read(file):
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""
