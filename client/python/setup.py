"""Adds the wire contract to the package; everything else is in pyproject.toml."""

import pathlib
import shutil

import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

import tlm_build

SOURCE = pathlib.Path("src", "tlm_client")


class BuildPy(build_py):
    """Builds the package with its schema; in the source tree itself for an editable install."""

    def run(self):
        super().run()
        if tlm_build.has_protos():
            editable = getattr(self, "editable_mode", False)
            tlm_build.write_schema(SOURCE if editable else
                                   pathlib.Path(self.build_lib, "tlm_client"))


class Sdist(sdist):
    """Makes a source archive that contains the schema, because the protos are not part of it."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if tlm_build.has_protos():
            tlm_build.write_schema(pathlib.Path(base_dir) / SOURCE)


# setuptools packs a file of this name, but only from the folder of setup.py.
if tlm_build.has_protos():
    shutil.copyfile(tlm_build.PROTOS.parent / "LICENSE", "LICENSE")
setuptools.setup(license="Apache-2.0", cmdclass={"build_py": BuildPy, "sdist": Sdist})
