"""The official Python client of Anthropic's API."""

import json

import anthropic
import pydantic
from harness import KEY, MODEL, URL, WEATHER, fails, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
TOOL = {"name": "get_weather", "description": "The weather in a city.", "input_schema": WEATHER}
EVENTS = {"message_start", "content_block_start", "ping", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}


# The client has no parameters for sampling.
GREEDY = {"temperature": 0}


def ask(content, **options):
    options = {"max_tokens": 200, "extra_body": GREEDY} | options
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return client.messages.create(model=MODEL, messages=messages, **options)


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def check_a_message_is_answered():
    answer = ask("Hello!")
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_")
    assert text(answer) and answer.stop_reason == "end_turn", answer
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0


def check_a_system_prompt_and_blocks_are_read():
    system = [{"type": "text", "text": "Your name is Otto.", "cache_control": {"type": "ephemeral"}}]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "What is your name?"}]}]
    assert "Otto" in text(ask(blocks, system=system))


def check_events_come_in_order():
    whole = text(ask("Hello!"))
    events = list(ask("Hello!", stream=True))
    types = [event.type for event in events if event.type != "ping"]
    assert set(types) <= EVENTS, types
    deltas = types[2:-3]
    assert types[:2] == ["message_start", "content_block_start"] and set(deltas) == {"content_block_delta"}, types
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"], types
    assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == whole


def check_the_stream_helper_puts_a_message_together():
    with client.messages.stream(model=MODEL, max_tokens=200, extra_body=GREEDY, messages=[{"role": "user", "content": "Hello!"}]) as stream:
        pieces = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert pieces == text(final) and final.stop_reason == "end_turn"


def check_stops_and_limits_are_named():
    whole = text(ask("Hello!"))
    cut = whole[len(whole) // 2 :][:3]
    stopped = ask("Hello!", stop_sequences=[cut])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == cut, stopped
    assert text(stopped) == whole[: whole.index(cut)]
    assert ask("Tell me a story.", max_tokens=3).stop_reason == "max_tokens"


def check_a_tool_is_used_and_its_result_read():
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = ask(asked, tools=[TOOL])
    assert answer.stop_reason == "tool_use", answer
    (use,) = [block for block in answer.content if block.type == "tool_use"]
    assert use.name == "get_weather" and "Paris" in use.input["city"], use
    result = {"type": "tool_result", "tool_use_id": use.id, "content": '{"weather": "sunny", "temperature": 21}'}
    after = ask([*asked, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}], tools=[TOOL])
    assert after.stop_reason == "end_turn" and text(after), after
    forced = ask("Hello!", tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True})
    assert [block.name for block in forced.content if block.type == "tool_use"] == ["get_weather"]


def check_a_streamed_tool_use_is_put_together():
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    whole = ask(asked, tools=[TOOL])
    with client.messages.stream(model=MODEL, max_tokens=200, extra_body=GREEDY, messages=asked, tools=[TOOL]) as stream:
        pieces = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    (use,) = [block for block in final.content if block.type == "tool_use"]
    assert json.loads(pieces) == use.input and final.stop_reason == "tool_use", (pieces, final)
    assert [block.input for block in whole.content if block.type == "tool_use"] == [use.input]


def check_a_schema_is_kept_and_parsed():
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)

    messages = [{"role": "user", "content": "Who are you?"}]
    answer = client.messages.parse(model=MODEL, max_tokens=300, extra_body=GREEDY, messages=messages, output_format=Person)
    assert isinstance(answer.parsed_output, Person), answer


def check_tokens_are_counted_as_they_are_billed():
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    counted = client.messages.count_tokens(model=MODEL, messages=messages, tools=[TOOL], system="Be brief.")
    usage = ask(messages, tools=[TOOL], system="Be brief.").usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0), (counted, usage)


def check_models_have_their_shape():
    models = client.models.list()
    assert MODEL in [model.id for model in models.data] and models.data[0].type == "model"
    assert client.models.retrieve(MODEL).display_name


def check_errors_are_their_errors():
    stranger = anthropic.Anthropic(base_url=URL, api_key="AAAAAAAAAAAAAAAAAAAAAA", max_retries=0)
    hello = [{"role": "user", "content": "x"}]
    fails(anthropic.AuthenticationError, "authentication_error", lambda: stranger.messages.create(model=MODEL, max_tokens=5, messages=hello))
    fails(anthropic.NotFoundError, "not_found_error", lambda: client.messages.create(model="nothing-like-it", max_tokens=5, messages=hello))
    fails(anthropic.BadRequestError, "temprature", lambda: ask("x", extra_body={"temprature": 1}))
    unknown = [{"role": "user", "content": [{"type": "hologram"}]}]
    fails(anthropic.BadRequestError, "messages.0.content.0", lambda: ask(unknown))
    forged = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "I think.", "signature": "AAAA"}, {"type": "text", "text": "y"}]}, *hello]
    error = fails(anthropic.BadRequestError, "signature", lambda: ask(forged))
    assert error.request_id


run(globals())
