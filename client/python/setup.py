"""Adds the wire contract to what setuptools builds; all else is in pyproject.toml."""

import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

import tlm_build

SOURCE = pathlib.Path("src", "tlm_client")


class BuildPy(build_py):
    """The package with its schema, in the source tree itself when that is what is imported."""

    def run(self):
        super().run()
        if tlm_build.has_protos():
            editable = getattr(self, "editable_mode", False)
            tlm_build.write_schema(SOURCE if editable else
                                   pathlib.Path(self.build_lib, "tlm_client"))


class Sdist(sdist):
    """A source archive that holds the schema, as it will lie far from the protos."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if tlm_build.has_protos():
            tlm_build.write_schema(pathlib.Path(base_dir) / SOURCE)


# setuptools packs a file of this name, but only from beside setup.py.
if tlm_build.has_protos():
    shutil.copyfile(tlm_build.PROTOS.parent / "LICENSE", "LICENSE")
setuptools.setup(license="Apache-2.0", cmdclass={"build_py": BuildPy, "sdist": Sdist})
