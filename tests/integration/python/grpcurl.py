"""Does as `grpcurl -plaintext [-d JSON] TARGET list SERVICE` and `... TARGET SERVICE/METHOD`, with the
tests' stubs: for machines without grpcurl, which distributions do not package."""

import argparse

from tlm_server import grpc  # first: it makes the stubs importable

from google.protobuf import json_format, message_factory
from reflection_pb2 import ServerReflectionRequest
from reflection_pb2_grpc import ServerReflectionStub
from tlm.v1 import language_model_pb2


def service_of(channel, name):
    """Its description, if the server's reflection names it."""
    response = next(ServerReflectionStub(channel).ServerReflectionInfo(
        iter([ServerReflectionRequest(list_services="")]), timeout=60))
    names = [service.name for service in response.list_services_response.service]
    if name not in names:
        raise SystemExit(f"{name} is none of {names}")
    return language_model_pb2.DESCRIPTOR.services_by_name[name.rpartition(".")[2]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-d", default="{}")
    parser.add_argument("target")
    parser.add_argument("what", nargs="+")
    args = parser.parse_args()
    with grpc.insecure_channel(args.target) as channel:
        if args.what[0] == "list":
            for method in service_of(channel, args.what[1]).methods:
                print(f"{args.what[1]}.{method.name}")
            return
        service, _, method = args.what[0].partition("/")
        description = service_of(channel, service).methods_by_name[method]
        factory = message_factory.MessageFactory()
        request = factory.GetPrototype(description.input_type)()
        call = channel.unary_stream(  # of one response, too
            f"/{service}/{method}", request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=factory.GetPrototype(description.output_type).FromString)
        for response in call(json_format.Parse(args.d, request), timeout=60):
            print(json_format.MessageToJson(response))


main()
