"""Two builds of a commit have one build id, wherever they are and whatever else they build."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
BUILD_DIR = pathlib.Path(os.environ["TLM_BUILD_DIR"])
SERVER = pathlib.Path(os.environ["TLM_BIN_DIR"], "tlm-server")
IDENTITY = "server/process/tlm-server_identity.cc"
# What a build without tests reads of a checkout.
SOURCES = ("CMakeLists.txt", ".cmake", "client", "deploy", "model", "proto", "server", "tests/layers", "LICENSE")


def hash_in(build):
    return re.search(r"[0-9a-f]{40}", (build / IDENTITY).read_text(encoding="utf-8"))[0]


class IdentityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tlm-identity-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name, "checkout")
        for name in SOURCES:
            source = SOURCE_DIR / name
            (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, cls.root / name,
                                ignore=shutil.ignore_patterns("*.safetensors", "__pycache__"))
            else:
                shutil.copy(source, cls.root / name)
        cls.build = cls.root / "build"

    def identity(self, *options):
        """Of a configuration without tests and without the CUDA module, with these options."""
        for command in (["cmake", "-S", self.root, "-B", self.build, "-G", "Ninja",
                         f"-DCMAKE_BUILD_TYPE={os.environ['TLM_BUILD_TYPE']}",
                         f"-DTLM_SANITIZE={os.environ['TLM_SANITIZE']}",
                         "-DTLM_TESTS=OFF", "-DTLM_CUDA=OFF", *options],
                        ["cmake", "--build", self.build, "--target", IDENTITY]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
        return hash_in(self.build)

    def test_what_decides_the_build_id(self):
        version = subprocess.run([SERVER, "--version"], stdout=subprocess.PIPE, text=True, check=True)
        here = hash_in(BUILD_DIR)
        self.assertIn(f"(build {here})", version.stdout)

        self.assertEqual(self.identity(), here)
        self.assertEqual(self.identity("-DCMAKE_BUILD_RPATH=/opt/elsewhere", "-DTLM_WERROR=ON", "-DTLM_UNITY=OFF",
                                       "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags",
                                       f"-DCMAKE_CXX_FLAGS=-ffile-prefix-map={self.root}=."), here)
        self.assertNotEqual(self.identity("-DCMAKE_CXX_FLAGS=-ffast-math"), here)
        sampler = self.root / "model" / "sampling" / "CMakeLists.txt"
        sampler.write_text(sampler.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
        self.assertNotEqual(self.identity("-DCMAKE_CXX_FLAGS="), here)


if __name__ == "__main__":
    unittest.main()
