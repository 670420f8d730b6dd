"""Public libraries that speak to services like ours, as people use them."""

import json
import os
import subprocess
import sys
import tempfile
import typing

import anthropic
import instructor
import litellm
import openai
import outlines
import pydantic
from harness import KEY, MODEL, URL, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "What is the weather in Paris?"
REPORT = '{"weather": "sunny", "temperature": 21}'
client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=150)
    mood: typing.Literal["calm", "cross"]


def check_instructor_fills_a_model():
    for mode in (instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        person = instructor.from_openai(client, mode=mode).chat.completions.create(
            model=MODEL, response_model=Person, messages=[{"role": "user", "content": "Who are you?"}], max_tokens=300
        )
        assert isinstance(person, Person)


def check_outlines_keeps_types():
    model = outlines.from_openai(client, MODEL)
    assert isinstance(Person.model_validate_json(model("Who are you?", Person, max_tokens=300)), Person)


def pydantic_agent(model):
    asked = []
    agent = Agent(model, model_settings={"temperature": 0, "max_tokens": 200})

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return REPORT

    answer = agent.run_sync(QUESTION).output
    assert asked and "Paris" in asked[0] and answer, (model, asked, answer)


OURS = OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY)


def check_pydantic_ai_runs_an_agent_on_our_openai_side():
    pydantic_agent(OpenAIChatModel(MODEL, provider=OURS))


def check_pydantic_ai_runs_an_agent_on_our_anthropic_side():
    theirs = anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0)
    pydantic_agent(AnthropicModel(MODEL, provider=AnthropicProvider(anthropic_client=theirs)))


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return REPORT


def langchain(model):
    bound = model.bind_tools([get_weather])
    messages = [HumanMessage(QUESTION)]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert call["name"] == "get_weather" and "Paris" in call["args"]["city"], answer
    messages += [answer, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
    assert bound.invoke(messages).text
    assert "".join(piece.text for piece in model.stream("Hello!")) == model.invoke("Hello!").text
    assert isinstance(model.with_structured_output(Person).invoke("Who are you?"), Person)


def check_langchain_works_with_our_openai_side():
    langchain(ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key=KEY, temperature=0, max_retries=0, max_tokens=300))


def check_langchain_works_with_our_anthropic_side():
    greedy = {"extra_body": {"temperature": 0}}
    langchain(ChatAnthropic(model=MODEL, base_url=URL, api_key=KEY, model_kwargs=greedy, max_retries=0, max_tokens=300))


def check_litellm_speaks_both():
    messages = [{"role": "user", "content": "Hello!"}]
    for name, base in ((f"openai/{MODEL}", f"{URL}/v1"), (f"anthropic/{MODEL}", URL)):
        options = {"model": name, "api_base": base, "api_key": KEY, "messages": messages, "temperature": 0, "max_tokens": 100}
        whole = litellm.completion(**options).choices[0].message.content
        pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **options)]
        assert whole and "".join(pieces) == whole, (name, whole, pieces)


def check_llm_prompts_from_the_command_line():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "extra-openai-models.yaml"), "w") as file:
            json.dump([{"model_id": "ours", "model_name": MODEL, "api_base": f"{URL}/v1", "api_key_name": "ours"}], file)
        with open(os.path.join(folder, "keys.json"), "w") as file:
            json.dump({"ours": KEY}, file)
        command = [os.path.join(os.path.dirname(sys.executable), "llm"), "-m", "ours", "Hello!"]
        out = subprocess.run(command, env=os.environ | {"LLM_USER_PATH": folder}, capture_output=True, text=True)
        assert out.returncode == 0 and out.stdout.strip(), out


def check_an_agent_loop_ends_with_an_answer():
    """As small as such loops are: calls until there are none, each answered by a function of ours."""
    tools = [{"type": "function", "function": {"name": "calculator", "description": "Computes an expression.", "parameters": {
        "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]
    tools += [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    called = []
    messages = [{"role": "user", "content": QUESTION}]
    for _ in range(4):
        message = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, temperature=0).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            called.append((call.function.name, json.loads(call.function.arguments)))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": REPORT})
    assert called and called[0][0] == "get_weather" and "Paris" in called[0][1]["city"], called
    assert "21" in message.content or "sunny" in message.content, message


def check_langchain_works_with_our_responses():
    model = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key=KEY, temperature=0, max_retries=0, use_responses_api=True)
    assert model.invoke("Hello!").text


def check_pydantic_ai_runs_an_agent_on_our_responses():
    pydantic_agent(OpenAIResponsesModel(MODEL, provider=OURS))


run(globals())
