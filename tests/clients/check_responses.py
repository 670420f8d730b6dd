"""The official Python client on the Responses API, completions and embeddings' neighbours."""

import json
import time

import openai
import pydantic
from harness import KEY, MODEL, URL, WEATHER, fails, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
TOOL = {"type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER, "strict": True}


def ask(text, **options):
    return client.responses.create(model=MODEL, input=text, temperature=0, **options)


def check_a_string_is_answered():
    answer = ask("Hello!")
    assert answer.status == "completed" and answer.output_text, answer
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def check_a_stream_has_every_event_in_order():
    whole = ask("Hello!").output_text
    events = list(ask("Hello!", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type for event in events]
    assert types[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ], types
    assert types[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ], types
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole == events[-1].response.output_text


def check_the_stream_helper_puts_a_response_together():
    with client.responses.stream(model=MODEL, input="Hello!", temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text


def check_limits_are_incomplete_responses():
    answer = ask("Count to 20.", max_output_tokens=16)
    if answer.status == "incomplete":
        assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens <= 16


def check_a_schema_is_parsed():
    class City(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=20)
        warm: bool

    parsed = client.responses.parse(model=MODEL, input="Name a city.", text_format=City, max_output_tokens=300)
    assert isinstance(parsed.output_parsed, City), parsed


def check_a_function_is_called_and_its_output_used():
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = ask(asked, tools=[TOOL])
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments)["city"], call
    output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"weather": "sunny", "temperature": 21}'}
    after = ask([*asked, *[item.model_dump(exclude_none=True) for item in answer.output], output], tools=[TOOL])
    assert after.output_text, after
    # The same by the stored response.
    again = ask([output], tools=[TOOL], previous_response_id=answer.id)
    assert again.output_text == after.output_text


def check_streamed_arguments_are_those_of_the_answer():
    asked = "What is the weather in Paris?"
    whole = [item for item in ask(asked, tools=[TOOL]).output if item.type == "function_call"][0].arguments
    events = list(ask(asked, tools=[TOOL], stream=True))
    pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    (done,) = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert pieces == whole == done.arguments


def check_responses_are_stored_listed_and_deleted():
    answer = ask("Hello!", metadata={"a": "b"})
    assert client.responses.retrieve(answer.id).output_text == answer.output_text
    items = client.responses.input_items.list(answer.id).data
    assert items[0].role == "user" and items[0].content[0].text == "Hello!", items
    client.responses.delete(answer.id)
    fails(openai.NotFoundError, answer.id, lambda: client.responses.retrieve(answer.id))
    unkept = ask("Hello!", store=False)
    fails(openai.NotFoundError, unkept.id, lambda: client.responses.retrieve(unkept.id))


def check_background_responses_are_polled_and_their_streams_resumed():
    answer = ask("Hello!", background=True)
    assert answer.status in ("queued", "in_progress", "completed"), answer
    until = time.monotonic() + 20
    while answer.status in ("queued", "in_progress"):
        assert time.monotonic() < until, answer
        time.sleep(0.05)
        answer = client.responses.retrieve(answer.id)
    assert answer.status == "completed" and answer.output_text, answer
    first = list(ask("Hello!", background=True, stream=True))
    rest = list(client.responses.retrieve(first[0].response.id, stream=True, starting_after=2))
    assert [event.sequence_number for event in rest] == [event.sequence_number for event in first[3:]]


def check_what_is_not_served_is_refused_by_name():
    search = {"tools": [{"type": "web_search"}], "tool_choice": "required"}
    fails(openai.BadRequestError, "web_search", lambda: ask("x", **search))
    answer = client.responses.with_raw_response.create(model=MODEL, input="Hello!", tools=search["tools"])
    assert answer.headers["x-ignored-fields"] == "tools.web_search" and answer.parse().output_text, answer
    fails(openai.BadRequestError, "temprature", lambda: ask("x", extra_body={"temprature": 1}))
    fails(openai.NotFoundError, MODEL, lambda: client.responses.create(model="nothing-like-it", input="x"))
    fails(openai.APIStatusError, "resp_nothing", lambda: ask("x", previous_response_id="resp_nothing"))


def check_completions_go_on_from_a_prompt():
    answer = client.completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0, echo=True, logprobs=None)
    assert answer.choices[0].text.startswith("Hello") and answer.object == "text_completion"
    several = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=2, n=2, temperature=1)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    whole = client.completions.create(model=MODEL, prompt="Hello", max_tokens=6, temperature=0).choices[0].text
    stream = client.completions.create(model=MODEL, prompt="Hello", max_tokens=6, temperature=0, stream=True)
    assert "".join(choice.text for chunk in stream for choice in chunk.choices) == whole


run(globals())
