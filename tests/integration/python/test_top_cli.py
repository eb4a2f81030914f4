"""`tlm top` on a pseudo-terminal and without one, against real servers."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import unittest

from support import ServerTest, request
from test_admin import AdminServer
from test_chat_cli import read_until
from tlm_server import BIN_DIR

BEGIN, END = "\x1b[?1049h", "\x1b[?1049l"  # the alternate screen
UNREACHABLE = "127.0.0.1:1"


class Terminal:
    """`tlm top` on a terminal of its own."""

    def __init__(self, *targets, rows=30, columns=110, **environment):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.master)
        self.process = subprocess.Popen(
            [BIN_DIR / "tlm", "top", f"--admin_target={','.join(targets)}"],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | environment)
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern):
        return read_until(self.master, pattern)

    def type(self, keys):
        os.write(self.master, keys)

    def exit_status(self):
        """Of the program, which must have given the terminal back."""
        shown = self.wait_for(r"\x1b\[\?1049l")
        assert shown.endswith("\x1b[?25h" + END), repr(shown[-40:])
        status = self.process.wait(60)
        assert termios.tcgetattr(self.master) == self.before
        return status


class TopCliTest(ServerTest):
    SERVER = AdminServer

    def test_shows_the_load_until_q(self):
        with Terminal(self.server.admin_target) as terminal:
            shown = terminal.wait_for(r"serving.*KV cache.*decode.*steps")
            self.assertTrue(shown.startswith(BEGIN), repr(shown))
            for _ in range(3):
                for _ in self.server.model.Generate(request(max_new_tokens=200), timeout=60):
                    pass
            # A column of the sparkline: some tokens were generated lately.
            terminal.wait_for(r"decode[^\r]*tok/s[^\r]*[▁▂▃▄▅▆▇█]")
            terminal.type(b"xq")
            self.assertEqual(terminal.exit_status(), 0)

    def test_signals_give_the_terminal_back(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with Terminal(self.server.admin_target) as terminal:
                terminal.wait_for("serving")
                terminal.process.send_signal(number)
                self.assertEqual(terminal.exit_status(), status)

    def test_follows_the_size_of_the_terminal(self):
        with Terminal(self.server.admin_target, UNREACHABLE) as terminal:
            terminal.wait_for(r"KV cache.*" + UNREACHABLE + ".*unreachable")
            terminal.resize(6, 150)
            terminal.wait_for(r"run  wait .*" + UNREACHABLE + r" +unreachable")
            terminal.resize(30, 40)
            shown = terminal.wait_for(r"KV cache  \[[-=#]{10}\]")
            longest = max(len(line) for line in shown.split("\x1b[K")[-5:])
            self.assertLess(longest, 80)  # 40 columns, and the sequences for styles
            terminal.type(b"q")
            self.assertEqual(terminal.exit_status(), 0)

    def test_a_server_that_comes_back_is_found_again(self):
        with AdminServer() as server:
            target = server.admin_target
            with Terminal(target) as terminal:
                terminal.wait_for("serving")
                server.terminate()
                server.wait()
                terminal.wait_for(r"unreachable.*UNAVAILABLE")
                port = target.rsplit(":", 1)[1]
                with AdminServer(f"--admin_port={port}"):
                    terminal.wait_for("serving")
                terminal.type(b"q")
                self.assertEqual(terminal.exit_status(), 0)

    def test_ascii_where_the_terminal_knows_no_more(self):
        with Terminal(self.server.admin_target, LC_ALL="C") as terminal:
            shown = terminal.wait_for(r"steps")
            self.assertTrue(shown.isascii(), shown)
            terminal.type(b"q")
            self.assertEqual(terminal.exit_status(), 0)

    def test_a_dumb_terminal_gets_the_table(self):
        with Terminal(self.server.admin_target, TERM="dumb") as terminal:
            shown = terminal.wait_for("serving")
            self.assertNotIn("\x1b", shown)
            self.assertEqual(terminal.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
