#!/usr/bin/env python3
"""Checks that every #include of the source tree goes down, between folders and within them.

usage: check_layers.py [ROOT] [--self-test]

layers.txt beside this file says which layer a folder has. A file may include headers of its own
folder and of folders of a lower layer. The client may include proto and itself, and its command
line (client/cli) what answers questions about models without a server: model/describe and the
folders below it that describe a model, and model/text. The OpenAI front (client/openai) may include
model/base. gRPC is seen by server/net, server/rpc with
the folders in it, and the client alone; generated messages by server/rpc, model/describe and the client.

Within a folder the units form no circle. A unit is X.h with X.cc: units whose files include each
other's headers, directly or through further units, cannot be read or tested one after the other.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".cc", ".inc", ".cu", ".cuh"}
GENERATED = ("tlm/v1/", "google/rpc/", "grpc/health/")
# With the folders in them.
MAY_SEE_GRPC = ("server/net", "server/rpc", "proto")
MAY_SEE_SERVICES = ("server/rpc", "proto")
MAY_SEE_MESSAGES = MAY_SEE_SERVICES + ("model/describe",)
# What the client's command line may include of the model.
DESCRIBES = ("model/describe", "model/accounting", "model/weights", "model/tensor", "model/config",
             "model/base/program", "model/base", "model/text")
# What the OpenAI front may include of the model.
BASE = ("model/base/program", "model/base")
# Circles of units that are allowed, each with its reason.
CIRCLES = {
    ("model/tokenizer/stream_decoder", "model/tokenizer/tokenizer"):
        "Tokenizer::Decode is a StreamDecoder that gets all tokens at once",
}


def read_layers(path):
    layers = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            layer, folder = line.split(None, 1)
            layers[folder] = int(layer)
    return layers


def folder_of(path, layers):
    """The deepest folder of the table that holds `path`, or None."""
    parts = pathlib.PurePosixPath(path).parent.parts
    for depth in range(len(parts), 0, -1):
        folder = "/".join(parts[:depth])
        if folder in layers:
            return folder
    return None


def is_in(folder, folders):
    return any(folder == other or folder.startswith(other + "/") for other in folders)


def complaint(includer, header, layers):
    """Why `includer` must not include `header`; None if it may."""
    top = includer.split("/", 1)[0]
    if top == "client":
        allowed = (DESCRIBES if includer.startswith("client/cli/") else
                   BASE if includer.startswith("client/openai/") else ())
        if header.startswith("model/") and folder_of(header, layers) in allowed:
            return None
        if header.startswith(("model/", "server/")):
            return ("client sees proto only, client/cli also what describes models, client/openai "
                    "model/base")
        if includer.startswith("client/openai/mapping/") and header.startswith((
                "client/openai/http/", "client/openai/routes/", "microhttpd.h")):
            return "the mapping knows nothing of HTTP"
        return None
    here = folder_of(includer, layers)
    if here is None:
        return "the folder has no layer"
    if header.startswith(("grpcpp/", "grpc/")) and not is_in(here, MAY_SEE_GRPC):
        return "only server/net, server/rpc and the client see gRPC"
    if header.startswith(GENERATED):
        messages_only = header.endswith(".pb.h") and not header.endswith(".grpc.pb.h")
        if not is_in(here, MAY_SEE_MESSAGES if messages_only else MAY_SEE_SERVICES):
            return "only server/rpc, model/describe and the client see generated proto"
        return None
    if header.startswith("client/"):
        return "the client is not part of the server"
    if not header.startswith(("model/", "server/")):
        return None
    there = folder_of(header, layers)
    if there is None:
        return "the included folder has no layer"
    if there != here and layers[there] >= layers[here]:
        return f"{there} (layer {layers[there]}) is not below {here} (layer {layers[here]})"
    return None


def unit_of(path):
    return path.rsplit(".", 1)[0]


def circles(includes):
    """The sets of units that reach each other; `includes` has for each unit those it includes."""
    below = {}
    for unit in includes:
        reached = set()
        rest = list(includes[unit])
        while rest:
            other = rest.pop()
            if other not in reached:
                reached.add(other)
                rest += includes.get(other, ())
        below[unit] = reached
    return {tuple(sorted(other for other in below[unit] if unit in below.get(other, ())))
            for unit in includes if unit in below[unit]}


def circle_complaints(found, allowed):
    return ([f"these units include each other: {', '.join(units)}"
             for units in sorted(found - set(allowed))] +
            [f"this circle is gone, remove it from CIRCLES: {', '.join(units)}"
             for units in sorted(set(allowed) - found)])


def check(root, layers):
    files = 0
    errors = []
    includes = {}
    for top in ("model", "server", "client", "proto"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            files += 1
            name = path.relative_to(root).as_posix()
            unit = unit_of(name)
            for header in INCLUDE.findall(path.read_text()):
                if unit_of(header) != unit and (root / header).is_file():
                    includes.setdefault(unit, set()).add(unit_of(header))
                why = complaint(name, header, layers)
                if why:
                    errors.append(f'{name}: includes "{header}": {why}')
    return files, errors, circle_complaints(circles(includes), CIRCLES)


def self_test(layers):
    """The rule must refuse what it is there to refuse."""
    forbidden = [
        ("model/ops/ops.h", "model/ops/cpu/cpu_ops.h"),
        ("model/ops/cpu/cpu_ops.cc", "model/ops/cuda/kernels.h"),
        ("model/weights/checkpoint.cc", "model/kv_cache/block_pool.h"),
        ("model/base/errors.h", "model/config/model_config.h"),
        ("server/batching/engine.cc", "server/rpc/convert/convert.h"),
        ("server/batching/engine.cc", "grpcpp/grpcpp.h"),
        ("server/admission/admission.cc", "tlm/v1/common.pb.h"),
        ("client/cpp/client.cc", "model/base/errors.h"),
        ("client/cpp/client.cc", "model/describe/offline.h"),
        ("client/cli/info.cc", "model/transformer_lm/transformer_lm.h"),
        ("client/cli/info.cc", "server/config/options.h"),
        ("client/openai/main.cc", "model/describe/offline.h"),
        ("client/openai/mapping/answer.cc", "client/openai/http/exchange.h"),
        ("model/describe/architecture.cc", "grpcpp/grpcpp.h"),
        ("model/describe/architecture.cc", "tlm/v1/language_model.grpc.pb.h"),
        ("model/describe/architecture.cc", "server/rpc/convert/convert.h"),
        ("model/accounting/flops.cc", "tlm/v1/model_info.pb.h"),
        ("model/accounting/flops.cc", "model/describe/architecture.h"),
        ("server/rpc/convert/convert.cc", "client/cpp/client.h"),
        ("server/rpc/convert/convert.cc", "server/rpc/call/unary_call.h"),
        ("server/net/grpc_listener.cc", "tlm/v1/common.pb.h"),
        ("server/process/app.cc", "grpcpp/grpcpp.h"),
    ]
    allowed = [
        ("model/ops/cpu/cpu_ops.cc", "model/ops/ops.h"),
        ("model/ops/cpu/cpu_ops.cc", "model/ops/cpu/kernels/kernels.h"),
        ("server/rpc/convert/convert.cc", "tlm/v1/common.pb.h"),
        ("server/rpc/language_model/model_info_handler.cc", "model/describe/architecture.h"),
        ("server/net/grpc_listener.cc", "grpcpp/grpcpp.h"),
        ("server/process/main.cc", "server/rpc/convert/convert.h"),
        ("model/describe/architecture.cc", "tlm/v1/model_info.pb.h"),
        ("model/describe/architecture.cc", "model/accounting/flops.h"),
        ("client/cli/info.cc", "model/describe/offline.h"),
        ("client/openai/mapping/fields.cc", "model/base/errors.h"),
        ("client/openai/routes/front.h", "client/openai/mapping/request.h"),
        ("client/cli/info.cc", "model/config/presets.h"),
        ("client/cpp/client.cc", "grpcpp/grpcpp.h"),
        ("model/base/errors.cc", "vector"),
    ]
    wrong = [f"{a} -> {b} was let through" for a, b in forbidden if not complaint(a, b, layers)]
    wrong += [f"{a} -> {b} was refused" for a, b in allowed if complaint(a, b, layers)]
    straight = {"a": {"b", "c"}, "b": {"c"}}
    found = circles({**straight, "c": {"d"}, "d": {"b"}, "e": {"a"}})
    if circles(straight) or found != {("b", "c", "d")}:
        wrong.append(f"circles of units are {found} instead of b, c, d")
    if not circle_complaints(found, {}) or not circle_complaints(set(), found):
        wrong.append("a circle that is not allowed, or an exception for none, was let through")
    if circle_complaints(found, found):
        wrong.append("a circle that is allowed was refused")
    return wrong


def main(arguments):
    here = pathlib.Path(__file__).resolve().parent
    layers = read_layers(here / "layers.txt")
    wrong = self_test(layers)
    if "--self-test" not in arguments:
        root = pathlib.Path(arguments[0]) if arguments else here.parent.parent
        files, errors, in_circles = check(root, layers)
        print(f"{files} files read, {len(errors)} includes go up, {len(in_circles)} circles")
        wrong += errors + in_circles
        if files == 0:
            wrong.append(f"no sources below {root}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
