"""Builds the examples: each `build_...` returns the command that runs one, without its arguments, or
raises Missing when what it needs is not installed."""

import os
import pathlib
import shutil
import subprocess

SOURCE_DIR = pathlib.Path(os.environ["TLM_SOURCE_DIR"])
WORK_DIR = pathlib.Path(os.environ["TLM_WORK_DIR"])
PREFIX = WORK_DIR / "prefix"
PROTO_DIR = SOURCE_DIR / "proto"
EXAMPLES = SOURCE_DIR / "client" / "examples"
CPP_EXAMPLE = SOURCE_DIR / "client" / "cpp" / "example"
BUILD_SECONDS = 300

JAVA_DIR = pathlib.Path("/usr/share/java")
JARS = ("grpc-api", "grpc-context", "grpc-core", "grpc-netty", "grpc-protobuf", "grpc-protobuf-lite",
        "grpc-stub", "protobuf", "guava", "opencensus-api", "perfmark-api", "jctools-core",
        "geronimo-annotation-1.3-spec", "netty-buffer", "netty-codec", "netty-codec-http",
        "netty-codec-http2", "netty-common", "netty-handler", "netty-handler-proxy",
        "netty-resolver", "netty-tcnative", "netty-transport",
        "netty-transport-native-unix-common")
GO_PATH = pathlib.Path("/usr/share/gocode")
GO_PACKAGES = ("google.golang.org/grpc", "google.golang.org/protobuf",
               "google.golang.org/genproto/googleapis/rpc/errdetails")


class Missing(Exception):
    """What is not installed."""


def run(command, **options):
    """Runs a build step; its output belongs to the failure."""
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=BUILD_SECONDS, check=False,
                            **options)
    if result.returncode != 0:
        raise RuntimeError(f"{command} ended with {result.returncode}:\n{result.stdout}")
    return result.stdout


def need(*programs):
    paths = [shutil.which(program) for program in programs]
    for program, path in zip(programs, paths):
        if path is None:
            raise Missing(f"no {program} on the PATH")
    return paths


def need_files(*paths):
    for path in paths:
        if not path.exists():
            raise Missing(f"no {path}")


def fresh(name):
    folder = WORK_DIR / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def protoc(*arguments, files="tlm/v1/*.proto"):
    need("protoc")
    run(["protoc", f"--proto_path={PROTO_DIR}", *arguments,
         *sorted(path for pattern in files.split() for path in PROTO_DIR.glob(pattern))])


def build_cpp_cmake():
    folder = fresh("cpp_cmake")
    cmake = os.environ["TLM_CMAKE"]
    run([cmake, "-S", CPP_EXAMPLE, "-B", folder, f"-DCMAKE_PREFIX_PATH={PREFIX}",
         f"-DCMAKE_CXX_COMPILER={os.environ['TLM_CXX']}"])
    run([cmake, "--build", folder])
    return [folder / "tlm_example"]


def pkg_config(*arguments):
    need("pkg-config")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    return run(["pkg-config", *arguments, "tlm-client"], env=environment).split()


def build_cpp_pkg_config():
    program = fresh("cpp_pkg_config") / "tlm_example"
    run([os.environ["TLM_CXX"], CPP_EXAMPLE / "main.cc", "-o", program,
         *pkg_config("--cflags", "--libs")])
    return [program]


def build_go():
    need("go", "protoc-gen-go", "protoc-gen-go-grpc")
    need_files(*(GO_PATH / "src" / package for package in GO_PACKAGES))
    folder = fresh("go")
    stubs = folder / "src"
    stubs.mkdir()
    protoc(f"--go_out={stubs}", f"--go-grpc_out={stubs}")
    program = folder / "generate"
    # The cache stays for the next time: it holds the compiled gRPC.
    environment = {**os.environ, "GO111MODULE": "off", "GOFLAGS": "", "GOPATH": f"{folder}:{GO_PATH}",
                   "GOCACHE": str(WORK_DIR / "go_cache")}
    run(["go", "build", "-o", program, EXAMPLES / "go" / "generate.go"], env=environment)
    return [program]


def build_java():
    [_, _, plugin] = need("javac", "java", "grpc_java_plugin")
    jars = [JAVA_DIR / f"{jar}.jar" for jar in JARS]
    need_files(*jars)
    stubs, classes, native = fresh("java_stubs"), fresh("java_classes"), fresh("java_native")
    # Debian's Netty has TLS with its native library only, and looks for it by another file name.
    for library in pathlib.Path("/usr/lib").glob("*/jni/libnetty-tcnative.so"):
        shutil.copy(library, native / "libnetty_tcnative.so")
    protoc(f"--java_out={stubs}", f"--grpc-java_out={stubs}",
           f"--plugin=protoc-gen-grpc-java={plugin}", files="tlm/v1/*.proto google/rpc/*.proto")
    class_path = ":".join(map(str, [classes, *jars]))
    run(["javac", "-nowarn", "-d", classes, "-cp", class_path, *stubs.rglob("*.java"),
         EXAMPLES / "java" / "Generate.java"])
    return ["java", "-XX:TieredStopAtLevel=1", f"-Djava.library.path={native}", "-cp", class_path,
            "Generate"]


def build_node():
    """Runs where the packages of package.json are found, as through NODE_PATH; elsewhere it can only
    be parsed."""
    need("node")
    program = EXAMPLES / "node" / "generate.js"
    run(["node", "--check", program])
    try:
        run(["node", "-e", "require('@grpc/grpc-js'); require('@grpc/proto-loader'); "
             "require('protobufjs')"], cwd=program.parent)
    except RuntimeError as error:
        raise Missing("@grpc/grpc-js, which no distribution packages; the example was parsed, not "
                      "run") from error
    os.environ["TLM_PROTO_DIR"] = str(PROTO_DIR)
    return ["node", program]


def build_ruby():
    [_, plugin] = need("ruby", "grpc_ruby_plugin")
    try:
        run(["ruby", "-e", "require 'grpc'; require 'google/rpc/error_details_pb'"])
    except RuntimeError as error:
        raise Missing(f"ruby-grpc: {str(error).splitlines()[1]}") from error
    stubs = fresh("ruby")
    protoc(f"--ruby_out={stubs}", f"--grpc_out={stubs}", f"--plugin=protoc-gen-grpc={plugin}")
    return ["ruby", "-I", stubs, EXAMPLES / "ruby" / "generate.rb"]


def build(name):
    return [str(word) for word in globals()[f"build_{name}"]()]
