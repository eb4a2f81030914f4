"""A base image made on this machine, of this machine's own distribution and package sources."""

import os
import pathlib
import platform
import shutil
import subprocess


def _apt_sources(codename):
    """(address, suite, component) of the machine's own sources of its distribution."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)",
         "Created-By: Packages"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout
    sources = sorted({tuple(line.split()) for line in listed.splitlines()})
    return [source for source in sources if source[1].split("-")[0] == codename]


def _apt_options():
    """How this machine reaches its sources: proxies, certificates, clocks."""
    dumped = subprocess.run(
        ["apt-config", "dump"], check=True, text=True, stdout=subprocess.PIPE).stdout
    wanted = ("Acquire::http", "Acquire::Check-")
    return "".join(line + "\n" for line in dumped.splitlines() if line.startswith(wanted))


def _remove(root):
    """Removes a system, one that was left in the making too, with what was mounted there."""
    subprocess.run(["umount", "-q", str(root / "proc"), str(root / "sys")], check=False)
    if not os.path.ismount(root / "proc"):
        shutil.rmtree(root, ignore_errors=True)


def bootstrap(folder):
    """Makes `folder`/base.tar, a minimal system with its package sources, unless it is there."""
    archive = folder / "base.tar"
    if archive.exists():
        return archive
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    sources = _apt_sources(codename)
    mirror = next(address for address, suite, component in sources
                  if suite == codename and component == "main")
    components = sorted({component for _, suite, component in sources if suite == codename})
    root = folder / "base"
    _remove(root)
    log = folder / "debootstrap.log"
    with open(log, "w", encoding="utf-8") as out:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", "--components=" + ",".join(components), codename,
             str(root), mirror],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if made.returncode != 0:
        raise RuntimeError("debootstrap failed: " + log.read_text()[-2000:])
    lines = [f"deb {address} {suite} {component}\n" for address, suite, component in sources]
    (root / "etc/apt/sources.list").write_text("".join(lines))
    (root / "etc/apt/apt.conf.d/90machine").write_text(_apt_options())
    for cache in ("var/cache/apt/archives", "var/lib/apt/lists"):
        for path in (root / cache).glob("**/*"):
            if path.is_file():
                path.unlink()
    partial = archive.with_suffix(".partial")
    subprocess.run(
        ["tar", "--one-file-system", "--numeric-owner", "-C", str(root), "-cf", str(partial), "."],
        check=True)
    _remove(root)
    partial.rename(archive)
    return archive


def import_image(buildah, folder, name):
    """Makes image `name` of what bootstrap() made."""
    context = pathlib.Path(folder) / "context"
    context.mkdir(exist_ok=True)
    archive = context / "base.tar"
    if not archive.exists():
        archive.hardlink_to(bootstrap(folder))
    (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["/bin/sh"]\n')
    buildah.build(context, name)
