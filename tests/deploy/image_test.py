#!/usr/bin/env python3
"""Builds the container images without an engine, and runs them as strictly as one can be run.

    tests/deploy/image_test.py [--work FOLDER] [--reuse]

The base is bootstrapped from this machine's own package sources, the images are built by buildah,
and run by an OCI runtime: with their own user, entry point and health check, nothing writable, no
capability, a loopback address of their own, and without a shell. The target `cuda` is built where
this machine has a CUDA toolkit, which stands in for what NVIDIA's base images bring; without a GPU
it must then serve on the CPU. Needs root and some 6 GB in FOLDER (build/image); --reuse tries the
images of the last run again. Exit status 77 where it cannot run.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
sys.path[:0] = [str(HERE / "image"), str(SOURCE / "tests/support")]

import base_image  # noqa: E402
import buildah as buildah_module  # noqa: E402
import container as container_module  # noqa: E402
import in_venv  # noqa: E402
from certificates import CURVE, openssl  # noqa: E402

SKIPPED = 77
BASE = "tlm-test-base"
CUDA_TOOLKIT = pathlib.Path("/usr/local/cuda")
# What the image may add to its base.
MAX_CONTENT_BYTES = 150_000_000
SHELLS_AND_THE_LIKE = ("bash", "dash", "sh", "perl", "apt", "apt-get", "dpkg")
START_SECONDS = 60

WORK = SOURCE / "build/image"  # --work


def regular_files(root):
    """Files below `root` by their name there, with what lstat says of them."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = pathlib.Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found["/" + str(path.relative_to(root))] = status
    return found


class ImageTests:
    """What holds of every target. Subclasses name the image and what it is run with."""

    IMAGE = ""
    MOUNTS = ()
    ENVIRONMENT = ()

    @classmethod
    def setUpClass(cls):
        cls.buildah = buildah_module.Buildah(WORK)
        if not cls.buildah.has(cls.IMAGE):
            raise unittest.SkipTest(f"no image {cls.IMAGE}")
        cls.config = cls.buildah.config(cls.IMAGE)
        cls.container_id, root = cls.buildah.container(cls.IMAGE)
        cls.root = pathlib.Path(root)
        cls.base_id, base_root = cls.buildah.container(BASE)
        cls.addClassCleanup(cls.buildah.remove, cls.base_id)
        cls.addClassCleanup(cls.buildah.remove, cls.container_id)
        cls.files = regular_files(cls.root)
        base = regular_files(base_root)
        cls.added = {name: status for name, status in cls.files.items() if name not in base}
        # Of this container, not of the image: what serves needs none of them.
        for name in SHELLS_AND_THE_LIKE:
            for folder in ("bin", "usr/bin"):
                (cls.root / folder / name).unlink(missing_ok=True)

    def run_container(self, arguments=None, mounts=()):
        return container_module.Container(WORK, self.root, self.config,
                                          self.config["Cmd"] if arguments is None else arguments,
                                          [*self.MOUNTS, *mounts], self.ENVIRONMENT)

    def wait_until_healthy(self, container, check=None):
        check = check or self.config["Healthcheck"]["Test"][1:]
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and not container.ended():
            if container.execute(check).returncode == 0:
                return
        self.fail("not healthy: " + container.log())

    # ---- what is in it -----------------------------------------------------------------------

    def test_size_is_within_its_bound(self):
        size = sum(status.st_size for status in self.added.values())
        whole = sum(status.st_size for status in self.files.values())
        print(f"{self.IMAGE}: {size / 1e6:.1f} MB in {len(self.added)} files over a base of "
              f"{(whole - size) / 1e6:.1f} MB")
        self.assertLess(size, MAX_CONTENT_BYTES)

    def test_no_file_is_setuid_or_setgid(self):
        privileged = [name for name, status in self.files.items()
                      if status.st_mode & (stat.S_ISUID | stat.S_ISGID)]
        self.assertEqual(privileged, [])

    def test_nothing_added_is_the_users_or_writable(self):
        for name, status in self.added.items():
            self.assertEqual((status.st_uid, status.st_gid), (0, 0), name)
            self.assertEqual(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), 0, name)

    def test_programs_are_stripped(self):
        for program in ("tlm-server", "tlm", "tlm-keys", "tlm-openai"):
            sections = subprocess.run(["readelf", "-S", str(self.root / "usr/local/bin" / program)],
                                      check=True, text=True, stdout=subprocess.PIPE).stdout
            self.assertNotIn(".symtab", sections, program)
            self.assertNotIn(".debug_info", sections, program)

    def test_bill_of_materials_lists_what_is_there(self):
        bill = json.loads((self.root / "usr/share/tlm/sbom.spdx.json").read_text())
        self.assertEqual(bill["spdxVersion"], "SPDX-2.3")
        listed = {entry["fileName"][1:]: entry["checksums"] for entry in bill["files"]}
        linked = {name for name in self.added if name.startswith("/usr/local/")}
        self.assertEqual(set(listed), linked)
        self.assertGreater(len(linked), 10)
        for name, checksums in listed.items():
            digest = hashlib.sha256((self.root / name[1:]).read_bytes()).hexdigest()
            self.assertIn({"algorithm": "SHA256", "checksumValue": digest}, checksums, name)

    def test_bill_of_materials_names_versions_and_licences(self):
        bill = json.loads((self.root / "usr/share/tlm/sbom.spdx.json").read_text())
        packages = {package["name"]: package for package in bill["packages"]}
        self.assertIn("tlm", packages)
        self.assertIn("nlohmann-json3-dev", packages)  # compiled in
        for name, package in packages.items():
            self.assertTrue(package["versionInfo"], name)
            if "externalRefs" not in package:
                self.assertIn(name, ("tlm", "cuda-runtime"))
                continue
            self.assertRegex(package["externalRefs"][0]["referenceLocator"], "^pkg:deb/.+@.+")
            self.assertTrue((self.root / "usr/share/doc" / name / "copyright").is_file(), name)
        self.assertTrue((self.root / "usr/share/doc/tlm/LICENSE").is_file())
        contained = {relation["relatedSpdxElement"] for relation in bill["relationships"]
                     if relation["relationshipType"] == "CONTAINS"}
        self.assertEqual(contained, {entry["SPDXID"] for entry in bill["files"]})

    def test_bill_of_materials_is_valid(self):
        folder = WORK / "venv"
        if not in_venv.make(folder, HERE / "image/requirements.txt"):
            self.skipTest("no SPDX validator from PyPI")
        checked = subprocess.run(
            [str(folder / "bin/pyspdxtools"), "-i",
             str(self.root / "usr/share/tlm/sbom.spdx.json")],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.assertEqual(checked.returncode, 0, checked.stdout[:2000])

    # ---- how it starts -----------------------------------------------------------------------

    def test_configuration(self):
        self.assertRegex(self.config["User"], r"^[1-9]\d*:[1-9]\d*$")
        self.assertEqual(self.config["Entrypoint"], ["/usr/local/bin/tlm-server"])
        self.assertEqual(
            self.config["Healthcheck"]["Test"][:3], ["CMD", "/usr/local/bin/tlm", "health"])
        self.assertEqual(set(self.config["ExposedPorts"]), {"50051/tcp", "9464/tcp"})
        labels = self.config["Labels"]
        self.assertEqual(labels["org.opencontainers.image.licenses"], "Apache-2.0")
        self.assertEqual(labels["org.opencontainers.image.version"], "test")
        self.assertEqual(labels["org.opencontainers.image.title"], "tlm-server")

    def test_serves_without_shell_rights_or_writable_files(self):
        with self.run_container() as container:
            self.wait_until_healthy(container)
            status = container.proc("status")
            for line in (r"Uid:\t65532\t65532", r"CapEff:\t0+\n", r"CapBnd:\t0+\n",
                         r"NoNewPrivs:\t1\n", r"Seccomp:\t2\n"):
                self.assertRegex(status, line)
            self.assertRegex(container.proc("mountinfo"), r"(?m)^\d+ \d+ \S+ \S+ / ro,")
            said = container.execute(
                ["/usr/local/bin/tlm", "generate", "In the evening", "--max_new_tokens=8",
                 "--temperature=0"]
            )
            self.assertEqual(said.returncode, 0, said.stdout)
            self.assertGreater(len(said.stdout.strip()), 4)
            container.kill("TERM")
            self.assertEqual(container.wait(timeout=30), 0, container.log())

    def test_health_check_fails_where_nothing_serves(self):
        with self.run_container(["--model=/usr/share/tlm/demo", "--port=50999"]) as container:
            self.wait_until_healthy(
                container, ["/usr/local/bin/tlm", "health", "--target=127.0.0.1:50999"])
            check = container.execute(self.config["Healthcheck"]["Test"][1:])
            self.assertNotEqual(check.returncode, 0, check.stdout)

    def test_listens_to_a_network_only_when_told_how(self):
        with self.run_container(["--model=/usr/share/tlm/demo", "--host=0.0.0.0"]) as container:
            self.assertNotEqual(container.wait(timeout=START_SECONDS), 0)
            self.assertIn("--insecure", container.log())

    def test_serves_with_tls(self):
        secrets = WORK / "secrets"
        secrets.mkdir(exist_ok=True)
        certificate, key = secrets / "tls.crt", secrets / "tls.key"
        name = ["-subj", "/CN=tlm.test", "-addext", "subjectAltName=DNS:tlm.test"]
        openssl("req", "-x509", *CURVE, "-nodes", *name, "-keyout", key, "-out", certificate)
        key.chmod(0o644)
        arguments = ["--model=/usr/share/tlm/demo", "--host=0.0.0.0", "--tls_cert=/run/tlm/tls.crt",
                     "--tls_key=/run/tlm/tls.key"]
        check = [*self.config["Healthcheck"]["Test"][1:], "--tls", "--ca_file=/run/tlm/tls.crt",
                 "--server_name=tlm.test"]
        with self.run_container(
            arguments, [container_module.bind(secrets, "/run/tlm")]) as container:
            self.wait_until_healthy(container, check)
            plain = container.execute(self.config["Healthcheck"]["Test"][1:])
            self.assertNotEqual(plain.returncode, 0, plain.stdout)


class CpuImageTest(ImageTests, unittest.TestCase):
    IMAGE = "tlm-test-cpu"


class CudaImageTest(ImageTests, unittest.TestCase):
    IMAGE = "tlm-test-cuda"
    # What NVIDIA's base images have, and tell the loader of.
    MOUNTS = (container_module.bind(CUDA_TOOLKIT.resolve(), str(CUDA_TOOLKIT)),)
    ENVIRONMENT = (f"LD_LIBRARY_PATH={CUDA_TOOLKIT}/lib64",)

    def test_says_what_the_gpu_backend_lacks(self):
        if list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            self.skipTest("there is a GPU")
        arguments = ["--model=/usr/share/tlm/demo", "--backend=cuda"]
        with self.run_container(arguments) as container:
            self.assertEqual(container.wait(timeout=START_SECONDS), 1)
            print(container.log().strip().splitlines()[-1])
            self.assertRegex(container.log(), "(?i)driver")

    def test_module_loads_with_all_it_needs(self):
        loader = ["/lib64/ld-linux-x86-64.so.2", "--preload", "/usr/local/lib/tlm/libtlm_cuda.so"]
        with self.run_container() as container:
            self.wait_until_healthy(container)
            said = container.execute([*loader, "/usr/local/bin/tlm-server", "--version"])
            self.assertEqual(said.returncode, 0, said.stdout)
            self.assertNotIn("cannot be preloaded", said.stdout)


def build_target(buildah, target, options=()):
    begin = time.monotonic()
    upper = target.upper()
    buildah.build(SOURCE, f"tlm-test-{target}", "--target", target, "--pull-never", "--build-arg",
                  f"{upper}_BUILD_BASE={BASE}", "--build-arg", f"{upper}_BASE={BASE}",
                  "--build-arg", "VERSION=test", "--build-arg", "SOURCE_DATE_EPOCH=1700000000",
                  *options)
    print(f"tlm-test-{target}: built in {time.monotonic() - begin:.0f} s", flush=True)


def build_images():
    buildah = buildah_module.Buildah(WORK)
    base_image.import_image(buildah, WORK, BASE)
    build_target(buildah, "cpu")
    if (CUDA_TOOLKIT / "bin/nvcc").exists():
        build_target(buildah, "cuda", ["--volume", f"{CUDA_TOOLKIT.resolve()}:{CUDA_TOOLKIT}:ro"])
    else:
        print(f"no CUDA toolkit in {CUDA_TOOLKIT}: the target cuda is not built")


def main():
    global WORK
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, default=WORK)
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--if-asked", action="store_true", help="by TLM_IMAGE_TEST")
    options, rest = parser.parse_known_args()
    WORK = options.work.resolve()
    if options.if_asked and not os.environ.get("TLM_IMAGE_TEST"):
        print("skipped: TLM_IMAGE_TEST is not set; it takes some 20 minutes")
        sys.exit(SKIPPED)
    if os.geteuid() != 0:
        print("skipped: needs root, for namespaces and mounts")
        sys.exit(SKIPPED)
    installed = subprocess.run([str(SOURCE / "deploy/install_packages.sh"), "image"])
    if installed.returncode != 0:
        print("skipped: what it needs cannot be installed")
        sys.exit(SKIPPED)
    if not options.reuse:
        shutil.rmtree(WORK / "storage", ignore_errors=True)
        WORK.mkdir(parents=True, exist_ok=True)
        build_images()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
