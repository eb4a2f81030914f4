"""Runs the root file system of an image with an OCI runtime, as strictly as one can be run."""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import time

# crun takes no mixture of the two generations of control groups; the test needs neither.
_RUNTIME = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
            'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh", "crun",
            "--cgroup-manager", "disabled", "--root")


def _process(config, arguments, environment):
    """The image's own user, no capability, no way to gain one."""
    user, _, group = config["User"].partition(":")
    return {
        "terminal": False,
        "user": {"uid": int(user), "gid": int(group)},
        "args": list(arguments),
        "env": [*config["Env"], *environment],
        "cwd": config.get("WorkingDir") or "/",
        "capabilities": {
            kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
        "noNewPrivileges": True,
    }


# The profile that engines apply unless told otherwise; a package buildah depends on brings it.
_SECCOMP_PROFILE = pathlib.Path("/usr/share/containers/seccomp.json")
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _seccomp():
    """The engines' profile in an OCI runtime's words, for a process without any capability."""
    profile = json.loads(_SECCOMP_PROFILE.read_text())
    architecture = _GO_ARCHITECTURES[platform.machine()]
    rules = []
    for rule in profile["syscalls"]:
        includes = rule.get("includes") or {}
        if includes.get("caps") or architecture not in includes.get("arches", [architecture]):
            continue
        kept = {key: rule[key] for key in ("names", "action") if key in rule}
        if rule.get("args"):
            kept["args"] = rule["args"]
        if rule.get("errnoRet") is not None:
            kept["errnoRet"] = rule["errnoRet"]
        rules.append(kept)
    default = {key: profile[key] for key in ("defaultAction", "defaultErrnoRet") if key in profile}
    return {**default, "syscalls": rules}


def _runtime_spec(root, process, mounts):
    """Nothing can be written, and the network is a loopback address of its own."""
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": process,
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k", "ro"]},
            *mounts,
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "seccomp": _seccomp(), "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"]},
    }


def bind(source, destination):
    """A folder of the host, to read."""
    return {"destination": destination, "type": "bind", "source": str(source),
            "options": ["rbind", "ro"]}


class Container:
    """A running container of an image; a context manager that kills what is left of it."""

    def __init__(self, folder, root, config, arguments, mounts=(), environment=()):
        """`root` is the image's root file system, `config` its configuration; `arguments` follow
        its entry point."""
        self._id = f"tlm-image-test-{os.getpid()}-{time.monotonic_ns()}"
        self._state = [*_RUNTIME, str(folder / "crun")]
        self._bundle = folder / self._id
        self._bundle.mkdir()
        self._process_spec = _process(config, [*config["Entrypoint"], *arguments], environment)
        spec = _runtime_spec(root, self._process_spec, mounts)
        (self._bundle / "config.json").write_text(json.dumps(spec))
        with open(self._bundle / "log", "wb") as log:
            self._process = subprocess.Popen(
                [*self._state, "run", "--bundle", str(self._bundle), self._id],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended():
            self.kill("KILL")
        self._process.wait(timeout=30)
        shutil.rmtree(self._bundle)

    def log(self):
        return (self._bundle / "log").read_text(errors="replace")

    def execute(self, arguments, timeout=60):
        """Runs a program in the container, with the user and the rights of its first process."""
        spec = self._bundle / "process.json"
        spec.write_text(json.dumps({**self._process_spec, "args": list(arguments)}))
        return subprocess.run([*self._state, "exec", "--process", str(spec), self._id], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)

    def proc(self, name):
        """/proc/PID/`name` of the container's first process."""
        state = json.loads(
            subprocess.run(
                [*self._state, "state", self._id], check=True, text=True, stdout=subprocess.PIPE
            ).stdout
        )
        return pathlib.Path(f"/proc/{state['pid']}/{name}").read_text()

    def kill(self, signal):
        subprocess.run([*self._state, "kill", self._id, signal], check=False)

    def wait(self, timeout):
        """The exit status of the first process."""
        return self._process.wait(timeout=timeout)

    def ended(self):
        return self._process.poll() is not None
