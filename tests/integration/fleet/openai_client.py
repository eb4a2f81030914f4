"""The client library `openai` against a gateway: openai_client.py PORT [logprobs]."""

import sys

import openai

PARAMETERS = {"model": "demo", "seed": 3, "temperature": 0.7}
MESSAGES = [{"role": "user", "content": "Good evening, Prince."}]


def main(port, logprobs):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["demo"]

    chat = client.chat.completions.create(messages=MESSAGES, max_tokens=16, logprobs=logprobs,
                                          **PARAMETERS)
    text = chat.choices[0].message.content
    assert chat.usage.completion_tokens == 16
    assert not logprobs or len(chat.choices[0].logprobs.content) == 16
    chunks = list(client.chat.completions.create(
        messages=MESSAGES, max_tokens=16, stream=True, stream_options={"include_usage": True},
        **PARAMETERS))
    streamed = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert streamed == text, (streamed, text)
    assert chunks[-1].usage.completion_tokens == 16

    completion = client.completions.create(prompt="In the evening", max_tokens=8, **PARAMETERS)
    assert completion.choices[0].finish_reason == "length"
    response = client.responses.create(model="demo", input="Good evening, Prince.",
                                       max_output_tokens=16, temperature=0)
    assert response.output_text and response.usage.output_tokens == 16

    for error, parameters in ((openai.NotFoundError, {"model": "another", "messages": MESSAGES}),
                              (openai.BadRequestError, {"model": "demo", "messages": []})):
        try:
            client.chat.completions.create(**parameters)
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


main(int(sys.argv[1]), "logprobs" in sys.argv)
