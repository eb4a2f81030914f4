#!/usr/bin/env python3
"""Checks what all files of the tree agree on: executable files name their interpreter, and examples
have the same ports.

usage: check_tree.py [ROOT]
"""

import os
import pathlib
import re
import sys

# Of the first replica, the second, and the one with TLS that stands beside them.
DATA_PORTS = {"50051", "50052", "50151"}
ADMIN_PORTS = {"50061", "50062", "50161"}
BALANCER_PORT = "50050"
PORT = re.compile(r"(?<![\d.,])50[01]\d\d\b")
# Where the port, or a list of targets, is of the one kind or the other.
ADMIN = re.compile(r"admin_(?:port|target)[=:]\s?(\S+)|AdminClient\((\S+)|port-forward \S+ (\S+)"
                   r"|admin, (\d+)")
DATA = re.compile(r"--(?:port|target)=(\S+)|(?<!Admin)Client\(([^)]+)|(?:Connect\(|grpc://)(\S+)"
                  r"|-plaintext.* (\S+:\d+) |EXPOSE (\d+)|containerPort: (\d+)|\bserver (?:\w+ )?(127\S+)")
EXAMPLES = {".md", ".yaml", ".yml", ".cfg", ".conf", ".flags", ".sh", ".service"}
# Their help and their comments have examples.
SOURCES = ("client/cli/", "client/python/src/")


def files_of(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders
                            if not name.startswith(".") and name not in ("build", "dependencies"))
        for path in (pathlib.Path(folder) / name for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                yield path


def has_ports(name):
    return pathlib.PurePath(name).suffix in EXAMPLES or name.startswith(SOURCES) or name == "Dockerfile"


def wrong_ports(text):
    """The numbers of the lines whose ports have another use than the convention gives them."""
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        def ports(pattern):
            return {port for match in pattern.finditer(line) for port in PORT.findall(match[0])}

        known = DATA_PORTS | ADMIN_PORTS | {BALANCER_PORT}
        if (set(PORT.findall(line)) - known or ports(ADMIN) - ADMIN_PORTS or
                ports(DATA) & ADMIN_PORTS):
            wrong.append(number)
    return wrong


def self_test():
    """The rule must refuse what it is there to refuse."""
    forbidden = ["--admin_port=50052", "--admin_target=127.0.0.1:50061,127.0.0.1:50152", "--port=50053",
                 'AdminClient("127.0.0.1:50052")', "--port=50061", "kubectl port-forward deploy/tlm 50052 &",
                 'Client(["127.0.0.1:50051", "127.0.0.1:50061"])', "# tlm admin, 50052",
                 "server b 127.0.0.1:50061 check"]
    allowed = ["--port=50052 --admin_port=50062", "--target=127.0.0.1:50051,127.0.0.1:50052",
               'AsyncAdminClient("127.0.0.1:50061")', "127.0.0.1:50061  serving", "1.50053", "150,053"]
    return ([f"{line!r} was let through" for line in forbidden if not wrong_ports(line)] +
            [f"{line!r} was refused" for line in allowed if wrong_ports(line)])


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parents[2]
    wrong = self_test()
    scripts = examples = 0
    for path in files_of(root):
        name = path.relative_to(root).as_posix()
        if path.stat().st_mode & 0o111:
            scripts += 1
            with open(path, "rb") as file:
                if file.read(2) != b"#!":
                    wrong.append(f"{name} is executable and does not begin with #!")
        if has_ports(name):
            examples += 1
            lines = path.read_text(encoding="utf-8").splitlines()
            wrong += [f"{name}:{number}: a port is not of its kind, see {pathlib.Path(__file__).name}: "
                      f"{lines[number - 1].strip()}" for number in wrong_ports("\n".join(lines))]
    print(f"{scripts} executable files and {examples} files with examples read")
    if not scripts or not examples:
        wrong.append(f"no files below {root}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
