"""The build backend: setuptools, and the wire contract compiled into the package.

In a checkout the protos are read from `proto` next to `client`; a source archive contains the
compiled schema. They are compiled with `protoc` if it is installed, otherwise with grpcio-tools.
"""

import json
import pathlib
import shutil
import subprocess
import sys

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401,F403  the unchanged hooks

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTOS = ROOT.parent.parent / "proto"
# Module of tlm_client -> the proto package whose messages it holds.
MODULES = {"messages": "tlm.v1", "_rpc": "google.rpc", "_health": "grpc.health.v1"}


def has_protos():
    """True if the wire contract is next to this package, and not part of it."""
    return (PROTOS / "tlm" / "v1").is_dir()


def _requirements():
    return ["grpcio-tools"] if has_protos() and shutil.which("protoc") is None else []


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _requirements()


def get_requires_for_build_sdist(config_settings=None):
    return build_meta.get_requires_for_build_sdist(config_settings) + _requirements()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _requirements()


def write_schema(folder):
    """Writes schema.binpb, a FileDescriptorSet; the type stubs of the modules made of it;
    answers.py, the dataclasses of its responses; and options.json, the texts of its comments about
    the fields of messages."""
    import tlm_answers
    import tlm_stubs
    from google.protobuf import descriptor_pb2

    schema = folder / "schema.binpb"
    protos = sorted(path for name in MODULES.values()
                    for path in PROTOS.joinpath(*name.split(".")).glob("*.proto"))
    if shutil.which("protoc") is not None:
        compiler = ["protoc"]
    else:
        import grpc_tools
        well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        compiler = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={well_known}"]
    subprocess.run([*compiler, f"--proto_path={PROTOS}", "--include_imports",
                    "--include_source_info", f"--descriptor_set_out={schema}", *protos], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.read_bytes()).file
    (folder / "options.json").write_text(
        json.dumps(tlm_stubs.field_texts(files, MODULES["messages"]), indent=0), encoding="utf-8")
    (folder / "answers.py").write_text(
        tlm_answers.module_of(files, MODULES["messages"]), encoding="utf-8")
    for file in files:
        file.ClearField("source_code_info")
    schema.write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())
    for module, package in MODULES.items():
        stub = tlm_stubs.stub_of(files, package)
        (folder / f"{module}.pyi").write_text(stub, encoding="utf-8")
