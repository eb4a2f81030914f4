"""Clients of the façades `dynamo`, `openengine` and `vllm`, with one interface for all three:

request() makes a request, begin() and abort() call the server, answers() gives the outputs by their
index and the log-probabilities of the prompt after its first token, and whole_answers() the outputs
again, by calls that do not stream.
"""

import collections
import itertools

from tlm_server import DEMO_MODEL  # first: it makes the stubs importable

from openengine.v1 import generation_pb2 as openengine, lifecycle_pb2, openengine_pb2_grpc
from vllm import control_pb2, control_pb2_grpc, inference_pb2, inference_pb2_grpc
from vllm.grpc.engine import vllm_engine_pb2 as vllm
from vllm.grpc.engine import vllm_engine_pb2_grpc

NUMBERS = itertools.count()

# matched: the stop string, or the id of the stop token. counted: the tokens that the answer counts.
Output = collections.namedtuple("Output", "ids text reason matched counted logprobs")


class Dynamo:
    """The façade `dynamo`."""

    def __init__(self, channel):
        self.inference = inference_pb2_grpc.InferenceStub(channel)
        self.control = control_pb2_grpc.ControlStub(channel)

    def request(self, ids, max_new_tokens=24, count=1, stop=(), stop_ids=(), logprobs=False, **sampling):
        """What the sidecar makes of a request: every group of options is there, zero means unset."""
        asked = inference_pb2.GenerateRequest(
            request_id=f"dynamo-{next(NUMBERS)}", token_ids={"ids": ids},
            temperature=sampling.pop("temperature", 1), sampling={"num_sequences": count}, decoding={},
            stopping={"max_new_tokens": max_new_tokens, "ignore_eos": True, "stop_strings": stop,
                      "stop_token_ids": stop_ids},
            response={"output_text": True, "output_token_ids": True, "output_logprobs": logprobs,
                      "prompt_logprobs": logprobs}, kv={})
        for name, value in sampling.items():
            group = asked.sampling if name in asked.sampling.DESCRIPTOR.fields_by_name else asked.decoding
            setattr(group, name, value)
        return asked

    def begin(self, asked, **options):
        return self.inference.GenerateStream(asked, timeout=60, **options)

    def abort(self, request_id, **options):
        self.control.Abort(control_pb2.AbortRequest(request_ids=[request_id, "unknown"]), **options)

    def answers(self, asked):
        prompt, *messages = self.begin(asked)
        outputs = {}
        for message in messages:
            outputs.setdefault(message.outputs.index, []).append(message.outputs)
        return ({index: self.output(parts) for index, parts in outputs.items()},
                list(prompt.prompt_info.logprobs[1:]))

    @staticmethod
    def output(parts):
        end = parts[-1].finish_info
        return Output([id_ for part in parts for id_ in part.token_ids],
                      "".join(part.text for part in parts),
                      inference_pb2.FinishInfo.FinishReason.Name(end.finish_reason).lower(),
                      end.stop_string or end.stop_token_id, end.num_output_tokens,
                      [value for part in parts for value in part.logprobs])

    def whole_answers(self, asked):
        if asked.sampling.num_sequences == 1:
            yield {0: self.output([self.inference.Generate(asked, timeout=60).outputs])}


class OpenEngine:
    """The façade `openengine`."""

    def __init__(self, channel):
        self.inference = openengine_pb2_grpc.InferenceStub(channel)
        self.control = openengine_pb2_grpc.ControlStub(channel)

    def request(self, ids, max_new_tokens=24, count=1, stop=(), stop_ids=(), logprobs=False, **sampling):
        if "seed" in sampling:
            sampling["seed"] %= 1 << 64
        return openengine.GenerateRequest(
            request_id=f"openengine-{next(NUMBERS)}", model=str(DEMO_MODEL),
            token_ids=openengine.TokenIds(ids=ids), sampling={"num_sequences": count, **sampling},
            stopping={"max_tokens": max_new_tokens, "ignore_eos": True,
                      "conditions": [*({"stop_text": text} for text in stop),
                                     *({"stop_token_id": id_} for id_ in stop_ids)]},
            response={"return_output_logprobs": logprobs, "return_prompt_logprobs": logprobs})

    def begin(self, asked, **options):
        return self.inference.Generate(asked, timeout=60, **options)

    def abort(self, request_id, **options):
        return self.control.Abort(lifecycle_pb2.AbortRequest(request_id=request_id), **options).status

    def answers(self, asked):
        messages = list(self.begin(asked))
        prompt = [token.logprob for message in messages for token in message.prompt.tokens][1:]
        outputs = {}
        for message in messages:
            if message.HasField("finished"):
                parts = [m.token for m in messages if m.HasField("token") and
                         m.token.output_index == message.finished.output_index]
                tokens = [token for part in parts for token in part.tokens]
                match = message.finished.stop_match
                outputs[message.finished.output_index] = Output(
                    [token.token_id for token in tokens], "".join(part.text for part in parts),
                    openengine.FinishReason.Name(message.finished.reason).split("_")[-1].lower(),
                    match.stop_text or match.stop_token_id,
                    messages[-1].usage.completion_tokens // asked.sampling.num_sequences,
                    [token.logprob for token in tokens])
        return outputs, prompt

    def whole_answers(self, asked):
        return ()


class Vllm:
    """The façade `vllm`."""

    def __init__(self, channel):
        self.engine = vllm_engine_pb2_grpc.VllmEngineStub(channel)

    def request(self, ids, max_new_tokens=24, count=1, stop=(), stop_ids=(), logprobs=False, **sampling):
        if logprobs:
            sampling |= {"logprobs": 1, "prompt_logprobs": 1}
        return vllm.GenerateRequest(
            request_id=f"vllm-{next(NUMBERS)}", tokenized={"input_ids": ids}, stream=True,
            sampling_params={"max_tokens": max_new_tokens, "ignore_eos": True, "n": count, "stop": stop,
                             "stop_token_ids": stop_ids, **sampling})

    def begin(self, asked, **options):
        return self.engine.Generate(asked, timeout=60, **options)

    def abort(self, request_id, **options):
        self.engine.Abort(vllm.AbortRequest(request_ids=[request_id, "unknown"]), **options)

    def answers(self, asked):
        messages = list(self.begin(asked))
        chunks = [m.chunk for m in messages if m.HasField("chunk")]
        outputs, prompt = {}, []
        for part in [*chunks, *(m.complete for m in messages if m.HasField("complete"))]:
            prompt = prompt or [t.value for t in part.input_logprobs.token_logprobs[1:]]
        for end in (m.complete for m in messages if m.HasField("complete")):
            parts = [chunk for chunk in chunks if chunk.index == end.index]
            outputs[end.index] = Output(
                [id_ for part in parts for id_ in part.token_ids] + list(end.output_ids), None,
                end.finish_reason, end.matched_stop_str or end.matched_token_id, end.completion_tokens,
                [value for part in [*parts, end] for value in part.output_logprobs.token_logprobs])
        return outputs, prompt

    def whole_answers(self, asked):
        whole = vllm.GenerateRequest()
        whole.CopyFrom(asked)
        whole.stream = False
        assert not any(message.HasField("chunk") for message in self.begin(whole))
        yield self.answers(whole)[0]


FACADES = (Dynamo, OpenEngine, Vllm)
