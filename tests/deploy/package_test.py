"""The Debian packages and the wheel: what is in them, and that a bare system with them serves.

    tests/deploy/package_test.py FOLDER

The second part needs root, debootstrap and the distribution's archive. It bootstraps a minimal
system from the machine's own package sources, once in FOLDER, installs the packages in a copy of
it, and runs the programs there without a service manager.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["TLM_BUILD_DIR"])
sys.path.insert(0, str(HERE / "image"))

import base_image  # noqa: E402
from skips import skip  # noqa: E402

WORK = pathlib.Path(sys.argv.pop(1))
START_SECONDS = 60
APT_SECONDS = 300
# A mount namespace of its own: nothing stays mounted.
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
CLIENT = """
import sys, tlm_client
with tlm_client.Client(sys.argv[1]) as client:
    print(client.generate("In the evening", max_new_tokens=8, temperature=0).text)
"""


def run(*command, seconds=60, **options):
    """The output of a command, which must end well."""
    ended = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds,
                           **options)
    if ended.returncode != 0:
        raise AssertionError(f"{command} ended with {ended.returncode}:\n{ended.stdout[-4000:]}")
    return ended.stdout


def build(folder, umask):
    """The packages of the finished build and the wheel, by name without version."""
    run("sh", "-c", 'umask "$0"; exec "$@"', umask, SOURCE / "deploy/packages/build.sh",
        f"--of={BUILD}", folder, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, seconds=200)
    return {re.split(r"[_-]\d", path.name)[0]: path for path in folder.iterdir()}


packages = {}


def setUpModule():
    for program in ("dpkg-deb", "dpkg-shlibdeps", "file", "protoc"):
        if shutil.which(program) is None:
            skip("package", f"no {program}")
    modules = "import setuptools, wheel, pip, google.protobuf"
    if subprocess.run(["/usr/bin/python3", "-c", modules], stderr=subprocess.DEVNULL).returncode:
        skip("package", "no pip, setuptools, wheel or protobuf of the distribution")
    shutil.rmtree(WORK / "packages", ignore_errors=True)
    packages.update(build(WORK / "packages/first", "022"))


class PackagesTest(unittest.TestCase):
    """The files, without installing any."""

    @classmethod
    def setUpClass(cls):
        cls.tree = WORK / "packages/tree"
        run("dpkg-deb", "-x", packages["tlm-server"], cls.tree)

    def field(self, package, name):
        return run("dpkg-deb", "-f", packages[package], name).strip()

    def test_packages_are_the_same_in_every_build(self):
        again = build(WORK / "packages/second", "077")
        self.assertEqual(set(again), set(packages))
        for name, path in packages.items():
            first, second = (
                hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, again[name]))
            self.assertEqual(first, second, name)

    def test_version_is_the_programs(self):
        version = run(BUILD / "bin/tlm", "version").split()[1]
        for package in ("tlm-server", "tlm-dev"):
            self.assertEqual(self.field(package, "Version").split("-")[0], version)
        self.assertEqual(packages["tlm_client"].name, f"tlm_client-{version}-py3-none-any.whl")

    def test_wheel_holds_contract_types_and_licence(self):
        with zipfile.ZipFile(packages["tlm_client"]) as wheel:
            names = [name.split("/")[-1] for name in wheel.namelist()]
        for name in ("schema.binpb", "answers.py", "messages.pyi", "py.typed", "LICENSE"):
            self.assertIn(name, names)

    def test_dependencies_are_those_of_the_programs(self):
        depends = self.field("tlm-server", "Depends")
        for library in ("libc6 (>=", "libgrpc++", "libssl", "libsystemd0", "systemd-sysusers"):
            self.assertIn(library, depends)
        self.assertNotIn("-dev", depends)

    def test_unit_names_what_the_package_holds(self):
        unit = (self.tree / "usr/lib/systemd/system/tlm-server.service").read_text()
        self.assertNotIn("/usr/local", unit)
        for path in re.findall(
            r"(?m)^ExecStart=(\S+)|--flagfile=(\S+)|^EnvironmentFile=-(\S+)", unit):
            self.assertTrue((self.tree / "".join(path)[1:]).is_file(), path)
        page, section = re.search(r"Documentation=man:(\S+)\((\d)\)", unit).groups()
        self.assertTrue((self.tree / f"usr/share/man/man{section}/{page}.{section}.gz").is_file())

    def test_configuration_is_kept_by_upgrades(self):
        kept = run("dpkg-deb", "-I", packages["tlm-server"], "conffiles").split()
        held = [f"/{path.relative_to(self.tree)}" for path in (self.tree / "etc").rglob("*.*")]
        self.assertEqual(sorted(kept), sorted(held))

    def test_files_are_roots_and_none_elses_to_write(self):
        for package in ("tlm-server", "tlm-dev"):
            for line in run("dpkg-deb", "-c", packages[package]).splitlines():
                self.assertRegex(line, r"^[d-]rw[x-]r-[x-]r-[x-] root/root ")

    def test_manual_pages_render_without_a_word(self):
        if shutil.which("man") is None:
            skip("package/man", "no man")
        pages = sorted((self.tree / "usr/share/man").rglob("*.gz"))
        self.assertEqual(
            [page.name for page in pages],
            ["tlm.1.gz", "tlm-keys.8.gz", "tlm-openai.8.gz", "tlm-server.8.gz"])
        for page in pages:
            shown = subprocess.run(["man", "--warnings", "--local-file", str(page)],
                                   env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), page)
            self.assertIn("DESCRIPTION", shown.stdout)

    def test_zsh_finds_completions(self):
        if shutil.which("zsh") is None:
            skip("package/zsh", "no zsh")
        folder = self.tree / "usr/share/zsh/vendor-completions"
        found = run("zsh", "-fc", f"fpath=({folder} $fpath); autoload -U compinit; compinit -uD; "
                    "print $_comps[tlm] $_comps[tlm-server]")
        self.assertEqual(found.split(), ["_tlm", "_tlm-server"])


class InstalledTest(unittest.TestCase):
    """A minimal system with the packages and the wheel."""

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            skip("package/installed", "needs root, for chroot")
        if shutil.which("debootstrap") is None:
            skip("package/installed", "no debootstrap")
        mount = ["unshare", "--mount", "mount", "-t", "proc", "proc", "/proc"]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
            skip("package/installed", "may not mount")
        try:
            base = base_image.bootstrap(WORK)
        except (RuntimeError, StopIteration) as error:  # no answer; no source of this release
            skip("package/installed", "no bootstrap: " + str(error).replace("\n", " ")[-300:])
        cls.root = WORK / "root"
        shutil.rmtree(cls.root, ignore_errors=True)
        cls.root.mkdir()
        cls.addClassCleanup(shutil.rmtree, cls.root)
        run("tar", "-C", cls.root, "--numeric-owner", "-xf", base)
        cls.give(*packages.values())
        try:
            cls.enter("apt-get", "update", "-q", "--error-on=any", seconds=APT_SECONDS)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            skip("package/installed", "no archive: " + str(error).replace("\n", " ")[-300:])
        client = ("bash-completion", "python3-venv", "python3-grpcio", "python3-protobuf",
                  "python3-numpy")
        cls.install(f"/packages/{packages['tlm-server'].name}", *client)

    @classmethod
    def give(cls, *files):
        (cls.root / "packages").mkdir(exist_ok=True)
        for file in files:
            shutil.copy(file, cls.root / "packages")

    @classmethod
    def enter(cls, *command, **options):
        return run("unshare", "--mount", "--", "sh", "-c", ENTER, cls.root, *command, **options)

    @classmethod
    def install(cls, *names):
        cls.enter("apt-get", "install", "-qy", "--no-install-recommends",
                  "-oDpkg::Options::=--force-unsafe-io", *names,
                  env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, seconds=APT_SECONDS)

    def serve(self):
        """Starts the server as the unit does, on a free port, and returns the client's target."""
        unit = (self.root / "usr/lib/systemd/system/tlm-server.service").read_text()
        command = re.search(r"(?m)^ExecStart=(.*)$", unit).group(1)
        user = re.search(r"(?m)^User=(.*)$", unit).group(1)
        settings = self.root / "etc/tlm/tlm-server.env"
        flags = '"--port=0 --port_file=/run/tlm/port --metrics_port=0"'
        settings.write_text(settings.read_text().replace("SERVER_FLAGS=", f"SERVER_FLAGS={flags}"))
        self.enter("install", "-d", "-o", user, "/run/tlm")
        become = f"setpriv --reuid={user} --regid={user} --init-groups"
        start = f"set -a; . /etc/tlm/tlm-server.env; exec {become} {command}"
        log = open(WORK / "server.log", "w+", encoding="utf-8")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            ["unshare", "--mount", "--", "sh", "-c", ENTER, self.root, "sh", "-c", start],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        port_file = self.root / "run/tlm/port"
        end = time.monotonic() + START_SECONDS
        while not (port_file.exists() and port_file.read_text()):
            self.assertIsNone(server.poll(), (WORK / "server.log").read_text())
            self.assertLess(time.monotonic(), end, (WORK / "server.log").read_text())
            time.sleep(0.05)
        return server, f"127.0.0.1:{port_file.read_text().strip()}"

    def test_serves_and_both_clients_answer(self):
        server, target = self.serve()
        said = self.enter("tlm", "generate", "In the evening", "--max_new_tokens=8",
                          "--temperature=0", f"--target={target}")
        self.assertGreater(len(said.strip()), 4)
        self.enter("/usr/bin/python3", "-m", "venv", "--system-site-packages", "/client")
        wheel = packages["tlm_client"].name
        self.enter("/client/bin/pip", "install", "--quiet", "--no-index", f"/packages/{wheel}")
        self.assertEqual(
            self.enter("/client/bin/python", "-c", CLIENT, target).strip(), said.strip())
        self.assertIsNone(server.poll(), (WORK / "server.log").read_text())
        self.assertEqual(
            self.enter("/client/bin/tlm-py", "health", f"--target={target}"), "SERVING\n")
        server.terminate()
        self.assertEqual(server.wait(timeout=60), 0, (WORK / "server.log").read_text())

    def test_systemd_understands_the_unit(self):
        said = self.enter("systemd-analyze", "verify", "--man=no", "tlm-server.service")
        self.assertNotIn("tlm-server", said)

    def test_completions_load_in_bash(self):
        load = ". /usr/share/bash-completion/bash_completion; "
        for program, function in (("tlm", "_tlm"), ("tlm-server", "_longopt")):
            found = self.enter(
                "bash", "-c", f"{load} _completion_loader {program}; complete -p {program}")
            self.assertEqual(found, f"complete -F {function} {program}\n")
        words = "COMP_WORDS=(tlm gen) COMP_CWORD=1; _tlm; echo ${COMPREPLY[@]}"
        said = self.enter("bash", "-c", f"{load} _completion_loader tlm; {words}")
        self.assertEqual(said, "generate\n")

    def test_keys_and_changed_flags_survive_upgrade_and_removal(self):
        configuration = self.root / "etc/tlm"
        self.assertEqual(self.enter("stat", "-c", "%U:%G %a", "/etc/tlm"), "root:tlm 750\n")
        with open(configuration / "server.flags", "a", encoding="utf-8") as flags:
            flags.write("--max_queue_length=7\n")
        (configuration / "keys.json").write_text("{}")
        self.enter("systemctl", "enable", "tlm-server.service")
        wanted = self.root / "etc/systemd/system/multi-user.target.wants/tlm-server.service"
        package = f"/packages/{packages['tlm-server'].name}"
        for step in (["--install", package], ["--remove", "tlm-server"], ["--install", package]):
            self.enter("dpkg", "--force-unsafe-io", *step)
            self.assertIn("--max_queue_length=7", (configuration / "server.flags").read_text())
            self.assertTrue(wanted.is_symlink())
        self.enter("dpkg", "--purge", "tlm-server")
        self.assertEqual([path.name for path in configuration.iterdir()], ["keys.json"])
        self.assertFalse(wanted.is_symlink())
        self.install(package)


if __name__ == "__main__":
    unittest.main(verbosity=2)
