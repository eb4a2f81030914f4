"""Shell completions and manual pages, in the shells and with the checkers that are installed."""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile
import unittest

from test_chat_cli import read_until
from tlm_server import BIN_DIR

SHARE = BIN_DIR.parent / "share"
COMMANDS = ["generate", "chat", "score", "verify", "forward", "info", "tokenize", "detokenize",
            "health", "serve", "admin", "bench", "top", "completion", "version", "help"]


def run(*command, text="", **options):
    """Standard output of a command, which must end well and silently."""
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60,
                            check=False, **options)
    if result.returncode != 0 or result.stderr:
        raise AssertionError(f"{command} ended with {result.returncode}: "
                             f"{result.stderr or result.stdout}")
    return result.stdout


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program}")


class CompletionTest(unittest.TestCase):

    def script(self, shell):
        """The script, which must be what the build has made."""
        text = run(BIN_DIR / "tlm", "completion", shell)
        file = {"bash": "bash-completion/completions/tlm", "zsh": "zsh/site-functions/_tlm",
                "fish": "fish/vendor_completions.d/tlm.fish"}[shell]
        self.assertEqual((SHARE / file).read_text(encoding="utf-8"), text)
        return text

    def bash(self, *words):
        """The candidates for the last word; bash takes "=" for a word of its own."""
        listed = " ".join(f"'{word}'" for word in words)
        out = run("bash", "--norc", "-c", f"{self.script('bash')}\nCOMP_WORDS=({listed})\n"
                  f"COMP_CWORD={len(words) - 1}\n_tlm\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
                  env={"PATH": f"{BIN_DIR}:/usr/bin:/bin"})
        return out.split("\n")[:-1]

    @needs("bash")
    def test_bash_completes_words(self):
        formats = ["float32", "bfloat16", "float16"]
        for words, candidates in (
                ([""], COMMANDS), (["to"], ["tokenize", "top"]),
                (["generate", "--top_"], ["--top_k=", "--top_p=", "--top_logprobs="]),
                (["bench", "--ra"], ["--rate="]), (["generate", "--ra"], [""]),
                (["generate", "text", "--ignore"], ["--ignore_eos"]),
                (["tokenize", "--noadd"], ["--noadd_special_tokens"]),
                (["forward", "--dtype", "=", ""], formats), (["forward", "--dtype", "="], formats),
                (["forward", "--dtype=b"], ["--dtype=bfloat16"]),
                (["forward", "--dtype", "b"], ["bfloat16"]),
                (["chat", "--reasoning", "=", ""], ["on", "off"]),
                (["chat", "--tool_choice=r"], ["--tool_choice=required"]),
                (["admin", "d"], ["drain"]), (["completion", ""], ["bash", "zsh", "fish"]),
                (["help", "tok"], ["tokenize"])):
            with self.subTest(words):
                self.assertEqual(self.bash("tlm", *words), candidates)
        self.assertIn("gpt2-xl", self.bash("tlm", "info", "--preset", "=", "gpt2-"))

    @needs("bash")
    def test_bash_completes_files(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "ca file.pem"
            file.touch()
            self.assertEqual(self.bash("tlm", "health", "--ca_file", "=", f"{directory}/c"),
                             [str(file)])
            self.assertEqual(self.bash("tlm", "info", f"{directory}/c"), [str(file)])

    @needs("zsh")
    def test_zsh_completes(self):
        script = self.script("zsh")
        run("zsh", "-n", text=script)
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "setup"
            file.write_text("autoload -Uz compinit; compinit -u -D\nPS1='> '\n" + script,
                            encoding="utf-8")
            master, slave = pty.openpty()
            shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave,
                                     start_new_session=True,
                                     env={"HOME": directory, "PATH": f"{BIN_DIR}:/usr/bin:/bin",
                                          "TERM": "dumb", "LC_ALL": "C.UTF-8"})
            os.close(slave)
            try:
                os.write(master, f"source {file}; print re''ady\n".encode())
                read_until(master, r"ready\r\n.*> ")
                for typed, completed in (("tlm ben", "tlm bench "),
                                         ("tlm generate --temp", "--temperature="),
                                         ("tlm forward --dtype=b", "--dtype=bfloat16"),
                                         ("tlm admin dr", "drain"),
                                         ("tlm info --al", "--all"),
                                         (f"tlm info {directory}/set", f"{directory}/setup")):
                    os.write(master, typed.encode() + b"\t")
                    read_until(master, re.escape(completed))
                    os.write(master, b"\x15")  # Ctrl-U: an empty line again
            finally:
                shell.kill()
                shell.wait()
                os.close(master)

    @needs("fish")
    def test_fish_completes(self):
        with tempfile.TemporaryDirectory() as home:
            script = self.script("fish")

            def complete(line):
                out = run("fish", "--no-config", "-c", f"{script}\ncomplete -C '{line}'",
                          env={"HOME": home, "PATH": f"{BIN_DIR}:/usr/bin:/bin"})
                return [candidate.split("\t")[0] for candidate in out.splitlines()]

            self.assertEqual(sorted(complete("tlm ")), sorted(COMMANDS))
            self.assertEqual(complete("tlm generate --tempe"), ["--temperature="])
            self.assertEqual(complete("tlm generate --rat"), [])
            self.assertEqual(sorted(complete("tlm admin ")),
                             ["abort", "config", "drain", "flush", "load"])
            self.assertEqual(complete("tlm forward --dtype=b"), ["--dtype=bfloat16"])
            self.assertEqual(complete("tlm info --al"), ["--all"])
            (pathlib.Path(home) / "model").mkdir()
            self.assertEqual(complete(f"tlm info {home}/mo"), [f"{home}/model/"])


class ManualTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.pages = [SHARE / "man/man1/tlm.1", SHARE / "man/man8/tlm-server.8",
                     SHARE / "man/man8/tlm-keys.8"]
        for command in COMMANDS:
            page = cls.directory / f"tlm-{command}.1"
            page.write_text(run(BIN_DIR / "tlm", "help", "--format=man", command),
                            encoding="utf-8")
            cls.pages.append(page)

    @needs("groff")
    def test_groff_warns_of_nothing(self):
        for page in self.pages:
            with self.subTest(page=page.name):
                self.assertIn("TLM", run("groff", "-ww", "-man", "-Tutf8", "-P-c", str(page)))

    @needs("man")
    def test_man_warns_of_nothing(self):
        for page in self.pages:
            with self.subTest(page=page.name):
                out = run("man", "-l", "--warnings", "-E", "UTF-8", str(page),
                          env={"MANWIDTH": "80", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
                self.assertIn("NAME", out)

    @needs("mandoc")
    def test_mandoc_warns_of_nothing(self):
        for page in self.pages:
            with self.subTest(page=page.name):
                self.assertEqual(run("mandoc", "-T", "lint", "-W", "warning", str(page)), "")

    @needs("man")
    def test_pages_tell_every_flag(self):
        def page(path):
            return run("man", "-l", "-E", "ascii", str(path),
                       env={"MANWIDTH": "200", "PATH": "/usr/bin:/bin", "LC_ALL": "C"})
        client = page(self.pages[0])
        for words in ("--max_new_tokens=VALUE", "--admin_target=VALUE", "TLM_API_KEY",
                      "tlm generate 'Once upon a time'"):
            self.assertTrue(words in client, words)
        server = page(self.pages[1])
        for words in ("--model=VALUE", "--admin_port=VALUE", "SIGTERM", "Default: 127.0.0.1."):
            self.assertTrue(words in server, words)


if __name__ == "__main__":
    unittest.main()
