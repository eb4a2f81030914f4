"""Installs the build, for this and for the tests of the C++ example, and looks at what is there."""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

import examples
from examples import PREFIX, run

BUILD_DIR = pathlib.Path(os.environ["TLM_BUILD_DIR"])


def install(prefix, *options):
    run([os.environ["TLM_CMAKE"], "--install", BUILD_DIR, "--prefix", prefix, *options])


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class InstallTreeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(PREFIX, ignore_errors=True)
        # Installed in one place and moved to another: nothing may know where it was.
        first = PREFIX.with_name("prefix_before_the_move")
        shutil.rmtree(first, ignore_errors=True)
        install(first)
        first.rename(PREFIX)

    def test_holds_programs_library_and_contract(self):
        present = files_in(PREFIX)
        for name in ("bin/tlm-server", "bin/tlm", "lib/cmake/tlm/tlmConfig.cmake",
                     "lib/pkgconfig/tlm-client.pc", "include/tlm-client/tlm/client/client.h",
                     "include/tlm-client/tlm/v1/language_model.grpc.pb.h",
                     "share/tlm/proto/tlm/v1/language_model.proto"):
            self.assertIn(name, present)

    def test_runtime_component_is_what_a_container_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            install(folder, "--component", "runtime")
            present = files_in(pathlib.Path(folder))
        self.assertLessEqual({"bin/tlm-server", "bin/tlm"}, present)
        allowed = {"bin/tlm-server", "bin/tlm", "bin/tlm-keys", "bin/tlm-openai",
                   "lib/tlm/libtlm_cuda.so", "share/doc/tlm/LICENSE"}
        self.assertEqual({name for name in present - allowed if ".so." not in name}, set())

    def test_command_line_runs(self):
        version = run([PREFIX / "bin" / "tlm", "version"])
        config = (PREFIX / "lib/cmake/tlm/tlmConfigVersion.cmake").read_text(encoding="utf-8")
        self.assertIn(f'PACKAGE_VERSION "{version.split()[1]}"', config)

    def test_packages_name_no_directory_of_the_build(self):
        for name in files_in(PREFIX):
            if name.endswith((".cmake", ".pc", ".h")):
                text = (PREFIX / name).read_text(encoding="utf-8")
                self.assertNotIn(str(BUILD_DIR), text, name)
                self.assertNotIn(os.environ["TLM_SOURCE_DIR"], text, name)

    def test_every_header_compiles_alone(self):
        flags = examples.pkg_config("--cflags")
        headers = sorted((PREFIX / "include/tlm-client/tlm/client").glob("*.h"))
        self.assertGreater(len(headers), 8)
        for header in headers:
            run([os.environ["TLM_CXX"], "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *flags, "-x",
                 "c++", "-include", header, "/dev/null"])

    def test_the_blocks_of_the_page_compile(self):
        page = (examples.SOURCE_DIR / "client" / "README.md").read_text(encoding="utf-8")
        first, *rest, last = re.findall(r"^```cpp\n(.*?)^```$", page, re.M | re.S)
        includes = re.findall(r"^#include.*\n", first, re.M)
        body = re.sub(r"^#include.*\n", "", first, flags=re.M) + "".join(rest)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "page.cc")
            source.write_text("#include <iostream>\n" + "".join(includes) +
                              f"absl::Status Page() {{\n{body}{{\n{last}}}\n}}\n", encoding="utf-8")
            run([os.environ["TLM_CXX"], "-std=c++20", "-fsyntax-only",
                 *examples.pkg_config("--cflags"), source])

    def test_other_versions_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\n"
                "find_package(tlm 99.0 CONFIG REQUIRED)\n", encoding="utf-8")
            with self.assertRaisesRegex(RuntimeError, "99.0"):
                run([os.environ["TLM_CMAKE"], "-S", folder, "-B", pathlib.Path(folder, "build"),
                     f"-DCMAKE_PREFIX_PATH={PREFIX}"])


if __name__ == "__main__":
    unittest.main()
