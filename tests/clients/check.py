"""The official Python client against a running service: `check.py URL KEY MODEL`. Ends with a line of what held."""

import asyncio
import json
import sys
import time
import typing
import urllib.request

import openai
import pydantic

URL, KEY, MODEL = sys.argv[1:4]
WORDS = ["apple", "river", "stone", "cloud", "green", "seven", "table", "music"]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
streaming = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


def ask(text, **options):
    return client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}], **options)


def models_are_listed_and_found():
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def an_answer_has_text_usage_and_a_reason():
    answer = ask("Hello!", temperature=0)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.model == MODEL
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def a_stream_says_the_same_as_an_answer():
    whole = ask("Hello!", temperature=0)
    pieces, usage, reasons = [], None, []
    for chunk in ask("Hello!", temperature=0, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert "".join(pieces) == whole.choices[0].message.content
    assert reasons == ["stop"]
    assert usage.completion_tokens == whole.usage.completion_tokens


def limits_seeds_stops_and_choices_are_honoured():
    assert ask("Count to 20.", max_completion_tokens=3).choices[0].finish_reason == "length"
    assert ask("Count to 20.", max_tokens=3).usage.completion_tokens == 3
    drawn = [ask("Tell me a story.", temperature=1.5, seed=seed, max_tokens=12).choices[0].message.content for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    whole = ask("Hello!", temperature=0).choices[0].message.content
    cut = whole[len(whole) // 2 :][:3]
    assert ask("Hello!", temperature=0, stop=[cut]).choices[0].message.content == whole[: whole.index(cut)]
    several = ask("Tell me a story.", n=3, temperature=1.5, seed=7, max_tokens=8).choices
    assert [choice.index for choice in several] == [0, 1, 2]
    assert len({choice.message.content for choice in several}) > 1


def fields_of_other_servers_are_honoured():
    short = ask("Hello!", temperature=0).usage.completion_tokens
    longer = short + 8
    assert ask("Hello!", temperature=0, max_tokens=longer, extra_body={"ignore_eos": True}).usage.completion_tokens == longer
    least = ask("Hello!", temperature=0, max_tokens=2 * longer, extra_body={"min_tokens": longer}).usage.completion_tokens
    assert least >= longer
    ask("Hello!", extra_body={"repeat_penalty": 1.1, "typical_p": 0.9, "enable_thinking": False}, max_tokens=4)


def probabilities_are_reported():
    answer = ask("Hello!", temperature=0, logprobs=True, top_logprobs=2, max_tokens=4)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in content)
    assert b"".join(bytes(token.bytes) for token in content).decode().startswith(answer.choices[0].message.content)


def a_tool_is_called_and_its_answer_used():
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = client.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL], temperature=0)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls", answer
    call = message.tool_calls[0]
    assert call.type == "function" and call.function.name == "get_weather" and "Paris" in call.function.arguments
    told = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny", "temperature": 21}'}
    after = client.chat.completions.create(
        model=MODEL, messages=[*asked, message.model_dump(exclude_none=True), told], tools=[TOOL], temperature=0
    )
    assert after.choices[0].message.content
    pieces = client.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL], temperature=0, stream=True)
    arguments = ""
    for chunk in pieces:
        for choice in chunk.choices:
            for piece in choice.delta.tool_calls or []:
                arguments += piece.function.arguments or ""
    assert arguments == call.function.arguments


def schemas_are_kept_and_parsed():
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)
        mood: typing.Literal["calm", "cross"]
        home: str | None = pydantic.Field(max_length=12)

    asked = [{"role": "user", "content": "Who are you?"}]
    options = {"model": MODEL, "messages": asked, "temperature": 1.3, "seed": 4, "max_tokens": 300}
    parsed = client.chat.completions.parse(response_format=Person, **options).choices[0].message.parsed
    assert isinstance(parsed, Person), parsed
    with client.chat.completions.stream(response_format=Person, **options) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == parsed
    whole = client.chat.completions.create(response_format={"type": "json_object"}, **options | {"temperature": 0})
    assert whole.choices[0].finish_reason == "length" or isinstance(json.loads(whole.choices[0].message.content), dict)

    tools = [openai.pydantic_function_tool(Person, name="introduce")]
    for choice in ["required", {"type": "function", "function": {"name": "introduce"}}]:
        answer = client.chat.completions.parse(
            tools=tools, tool_choice=choice, parallel_tool_calls=False, **options
        )
        (call,) = answer.choices[0].message.tool_calls
        assert isinstance(call.function.parsed_arguments, Person), call


def completions_continue_prompts():
    def complete(prompt, **options):
        return client.completions.create(model=MODEL, prompt=prompt, **{"temperature": 0, "max_tokens": 8} | options)

    whole = complete("Hello", extra_body={"ignore_eos": True})
    assert whole.object == "text_completion" and whole.usage.completion_tokens == 8, whole
    assert whole.choices[0].finish_reason == "length" and whole.choices[0].text
    chunks = complete("Hello", stream=True, extra_body={"ignore_eos": True})
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    several = complete(["Hello", "What"], n=2, temperature=1, seed=1, echo=True).choices
    assert [choice.index for choice in several] == [0, 1, 2, 3]
    assert [choice.text.startswith(start) for choice, start in zip(several, ["Hello", "Hello", "What", "What"])] == [True] * 4
    likely = complete("Hello", logprobs=2, extra_body={"ignore_eos": True}).choices[0].logprobs
    assert len(likely.tokens) == 8 and all(len(top) == 2 for top in likely.top_logprobs), likely


def mistakes_have_their_own_errors():
    def fails(kind, word, call):
        try:
            call()
        except kind as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"no {kind.__name__}")

    stranger = openai.OpenAI(base_url=f"{URL}/v1", api_key="AAAAAAAAAAAAAAAAAAAAAA", max_retries=0)
    x = [{"role": "user", "content": "x"}]
    fails(openai.AuthenticationError, "Invalid API Key", lambda: stranger.chat.completions.create(model=MODEL, messages=x))
    fails(openai.BadRequestError, "temperature", lambda: ask("x", extra_body={"temprature": 1}))
    fails(openai.BadRequestError, "This model's maximum context length is", lambda: ask("word " * 20_000))
    fails(openai.BadRequestError, "is not an image model", lambda: client.images.generate(model=MODEL, prompt="x"))
    fails(openai.NotFoundError, MODEL, lambda: client.chat.completions.create(model="nothing-like-it", messages=x))


def what_is_not_implemented_is_not_retried():
    patient = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=5)
    began = time.monotonic()
    try:
        patient.post("/videos/none/remix", cast_to=object, body={"model": MODEL, "prompt": "x"})
    except openai.APIStatusError as error:
        assert error.status_code == 501, error
    else:
        raise AssertionError("no error")
    assert time.monotonic() - began < 0.4, "it was retried"


def sixty_four_streams_do_not_mix():
    prompts = [f"Repeat after me: {WORDS[i % 8]} {WORDS[i // 8]}" for i in range(64)]
    alone = [ask(prompt, temperature=0, max_tokens=24).choices[0].message.content for prompt in prompts]

    # As many at once as an account may have open.
    room = asyncio.Semaphore(24)

    async def stream(prompt):
        messages = [{"role": "user", "content": prompt}]
        async with room:
            pieces = await streaming.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=24, stream=True)
            return "".join([choice.delta.content or "" async for chunk in pieces for choice in chunk.choices])

    async def together():
        return await asyncio.gather(*map(stream, prompts))

    assert asyncio.run(together()) == alone
    assert len(set(alone)) > 32


def hanging_up_frees_the_slot():
    stream = ask("Tell me a story.", temperature=1.5, seed=3, max_tokens=900, stream=True)
    next(iter(stream))
    stream.close()
    hung_up = time.monotonic()
    while running() > 0:
        assert time.monotonic() - hung_up < 1.0, "the slot is still taken"
        time.sleep(0.02)


def running():
    """Jobs that are on a worker, by the service's own figures."""
    with urllib.request.urlopen(f"{URL}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith("muster_jobs_running "):
                return float(line.split()[1])
    raise AssertionError("no muster_jobs_running among the metrics")


def main():
    checks = [value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", "") == "__main__"]
    checks = [check for check in checks if check.__name__ not in ("ask", "running", "main")]
    for check in checks:
        check()
        print("held:", check.__name__, flush=True)
    print(f"{len(checks)} held")


main()
