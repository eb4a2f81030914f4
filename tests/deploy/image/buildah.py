"""Images without an engine: buildah, with a storage of its own."""

import json
import subprocess


class Buildah:
    def __init__(self, folder):
        self._command = ["buildah", "--storage-driver", "vfs", "--root", str(folder / "storage"),
                         "--runroot", str(folder / "run")]

    def _run(self, *arguments):
        return subprocess.run(
            [*self._command, *arguments], check=True, text=True, stdout=subprocess.PIPE
        ).stdout.strip()

    def build(self, context, name, *options):
        """Builds the Dockerfile of `context`; what the steps say goes to standard output."""
        # The health check is no part of the OCI format.
        subprocess.run(
            [*self._command, "bud", "--isolation", "chroot", "--format", "docker", "--layers=false",
             *options, "-t", name, str(context)],
            check=True,
        )

    def has(self, name):
        return (
            subprocess.run([*self._command, "inspect", "--type", "image", name],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            == 0
        )

    def config(self, name):
        """The image's configuration, as Docker writes it: User, Entrypoint, Healthcheck, ..."""
        return json.loads(self._run("inspect", "--type", "image", name))["Docker"]["config"]

    def container(self, name):
        """A container of image `name`: its id and the folder of its root file system."""
        container = self._run("from", "--pull-never", name)
        return container, self._run("mount", container)

    def remove(self, container):
        self._run("rm", container)
