"""What the test modules share: a server, requests, and answers and statuses taken apart."""

import array
import math
import re
import tempfile
import unittest

import grpc

from tlm_server import TlmServer, model_with_template  # first: it makes the stubs importable

from google.rpc import error_details_pb2, status_pb2
from tlm.v1 import common_pb2, forward_pb2, generate_pb2, tokenize_pb2

PROMPT = "Once upon a time"


class ServerTest(unittest.TestCase):
    """Tests against one server, started for the whole class with these flags."""

    FLAGS = ()
    TEMPLATE = None  # of the conversations, instead of the bundled model's
    SERVER = TlmServer

    @classmethod
    def setUpClass(cls):
        flags = cls.FLAGS
        if cls.TEMPLATE is not None:
            folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tlm-test-"))
            cls.directory = model_with_template(folder, cls.TEMPLATE)
            flags = (f"--model={cls.directory}", *flags)
        cls.server = cls.enterClassContext(cls.SERVER(*flags))
        cls.model = cls.server.model

    def generate(self, request, timeout=60):
        """The whole answer as an Answer."""
        return Answer(list(self.model.Generate(request, timeout=timeout)))

    def tokenize(self, text):
        return list(self.model.Tokenize(tokenize_pb2.TokenizeRequest(text=text)).token_ids)

    def detokenize(self, ids):
        return self.model.Detokenize(tokenize_pb2.DetokenizeRequest(token_ids=ids)).text

    def assert_fails(self, code, call):
        """The grpc.RpcError that `call`, which may return a stream, must end with."""
        with self.assertRaises(grpc.RpcError) as caught:
            result = call()
            if hasattr(result, "__next__"):
                for _ in result:
                    pass
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception


def output_of(events, index):
    """The events that belong to one output, or to all of them."""
    def belongs(event):
        kind = event.WhichOneof("event")
        return kind not in ("tokens", "finished") or getattr(event, kind).output_index == index
    return Answer([event for event in events if belongs(event)])


class Answer:
    """The events of a Generate stream that ended well, of a single output."""

    def __init__(self, events):
        self.events = events
        self.kinds = [event.WhichOneof("event") for event in events]
        self.started = next(e.started for e in events if e.HasField("started"))
        self.finished = next(e.finished for e in events if e.HasField("finished"))
        self.summary = next(e.summary for e in events if e.HasField("summary"))
        self.prompt = [token for e in events if e.HasField("prompt") for token in e.prompt.tokens]
        self.chunks = [e.tokens for e in events if e.HasField("tokens")]
        self.tokens = [token for chunk in self.chunks for token in chunk.tokens]
        self.ids = [token.id for token in self.tokens]
        self.text = "".join(chunk.text for chunk in self.chunks)


def request(prompt=PROMPT, max_new_tokens=24, **sampling):
    """A GenerateRequest that asks for ids and does not stop by itself."""
    return generate_pb2.GenerateRequest(
        prompt=prompt,
        sampling=common_pb2.SamplingParams(**sampling),
        stopping=generate_pb2.StoppingCriteria(max_new_tokens=max_new_tokens, ignore_eos=True),
        output=generate_pb2.OutputOptions(token_ids=True))


def request_of_ids(ids, max_new_tokens=24, **sampling):
    """The same of token ids."""
    asked = request(max_new_tokens=max_new_tokens, **sampling)
    asked.prompt_token_ids.ids.extend(ids)
    return asked


def bypassing(asked):
    """The request, which neither looks blocks up in the prefix cache nor publishes them."""
    asked.cache.bypass_prefix_cache = True
    return asked


def logits(model, sequences):
    """Of each sequence of ids the rows of logits, one after each of its tokens."""
    asked = forward_pb2.ForwardRequest(sequences=[{"ids": ids} for ids in sequences], all=True)
    rows, width = [[] for _ in sequences], 0
    for message in model.Forward(asked, timeout=120):
        width = message.header.row_width or width
        values = array.array("f", message.rows.data)
        rows[message.rows.sequence_index] += [
            list(values[i:i + width]) for i in range(0, len(values), width or 1)]
    return rows


def distance(actual, expected):
    """Relative L2 of the rows of two models."""
    pairs = [(a, e) for rows, others in zip(actual, expected, strict=True)
             for row, other in zip(rows, others, strict=True)
             for a, e in zip(row, other, strict=True)]
    return math.sqrt(math.fsum((a - e) ** 2 for a, e in pairs) / math.fsum(e * e for _, e in pairs))


def parts_of(memory):
    """The bytes of ModelInfo's memory that are its `allocated_total`."""
    return (sum(weights.bytes for weights in memory.weights)
            + memory.kv_blocks_total * memory.kv_block_tokens * memory.kv_bytes_per_token
            + memory.activation_arena + memory.logits_workspace + memory.graph_pool
            + memory.runtime_reserved + memory.draft_model)


def stop_report(server):
    """Stops the server, which must end well; the numbers of the line it ends with."""
    server.terminate()
    status, log = server.wait(), server.log()
    if status != 0:
        raise AssertionError(f"tlm-server ended with {status}:\n{log}")
    line = next(line for line in log.splitlines() if "stopped: " in line)
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}


def details_of(error, message_type):
    """The detail of that type in an error's google.rpc.Status; None without one."""
    metadata = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata.get("grpc-status-details-bin", b""))
    for detail in status.details:
        message = message_type()
        if detail.Unpack(message):
            return message
    return None


def violated_fields(error):
    """The fields that an error's BadRequest names."""
    bad_request = details_of(error, error_details_pb2.BadRequest)
    return [] if bad_request is None else [v.field for v in bad_request.field_violations]
