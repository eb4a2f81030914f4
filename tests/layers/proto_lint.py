#!/usr/bin/env python3
"""`buf lint` of proto/ by proto/buf.yaml, whose exceptions are exactly those that are listed here."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
BUF = pathlib.Path(sys.executable).parent / "buf"
# Names of tlm.v1 that break a rule. They are older than the rule, and the wire contract renames
# nothing: new names follow the rules.
OLD_SERVICES = {"Admin", "LanguageModel"}
# Chat.ToolChoice.Mode and SpeculationOptions.Mode.
OLD_ENUM_VALUES = {"AUTO", "NONE", "REQUIRED", "OFF"}


def lint(proto, config, *options):
    """What buf says, as (rule, file, quoted name)."""
    done = subprocess.run([BUF, "lint", "--error-format=json", f"--config={json.dumps(config)}", *options],
                          cwd=proto, text=True, capture_output=True, check=False,
                          env={"HOME": tempfile.gettempdir(), "XDG_CACHE_HOME": str(proto / ".buf-cache")})
    if done.returncode not in (0, 100):  # 100: there are findings
        raise AssertionError(done.stderr)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    return {(each["type"], each["path"], re.search(r'"(\w+)"|$', each["message"])[1])
            for each in findings}


class ProtoLintTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tlm-proto-")
        self.addCleanup(folder.cleanup)
        self.proto = pathlib.Path(shutil.copytree(PROTO, pathlib.Path(folder.name, "proto")))
        self.config = yaml.safe_load((PROTO / "buf.yaml").read_text(encoding="utf-8"))

    def test_the_contract_follows_the_rules(self):
        self.assertEqual(lint(self.proto, self.config), set())

    def test_exceptions_are_old_names_and_no_others(self):
        del self.config["lint"]["ignore_only"]
        expected = {("SERVICE_SUFFIX", name) for name in OLD_SERVICES}
        expected |= {("ENUM_VALUE_PREFIX", name) for name in OLD_ENUM_VALUES}
        findings = lint(self.proto, self.config, "--path=tlm")
        self.assertEqual({(rule, name) for rule, _, name in findings}, expected)

    def test_only_the_contract_of_this_project_is_checked(self):
        folders = {path.relative_to(PROTO).parts[0] for path in PROTO.rglob("*.proto")}
        self.assertEqual(folders - set(self.config["lint"]["ignore"]), {"tlm"})

    def test_each_kind_of_mistake_is_found(self):
        (self.proto / "tlm/v1/mistakes.proto").write_text(
            'syntax = "proto3";\npackage tlm.v1;\n'
            'option go_package = "tlm/v1;tlmv1";\noption java_multiple_files = true;\n'
            "enum Colour { RED = 0; }\n"
            "message Ask { string Name = 1; }\nmessage Reply {}\n"
            "service Painter { rpc Paint(Ask) returns (Reply); }\n", encoding="utf-8")
        found = {rule for rule, path, _ in lint(self.proto, self.config, "--path=tlm")
                 if path == "tlm/v1/mistakes.proto"}
        self.assertEqual(found, {
            "COMMENT_ENUM", "COMMENT_RPC", "COMMENT_SERVICE", "ENUM_VALUE_PREFIX",
            "ENUM_ZERO_VALUE_SUFFIX", "FIELD_LOWER_SNAKE_CASE", "RPC_REQUEST_STANDARD_NAME",
            "RPC_RESPONSE_STANDARD_NAME", "SERVICE_SUFFIX"})


if __name__ == "__main__":
    unittest.main()
