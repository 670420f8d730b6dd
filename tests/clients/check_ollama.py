"""Ollama's official Python client: with a key, and on this machine without one."""

import json
import urllib.error
import urllib.request

import ollama
from harness import KEY, MODEL, URL, WEATHER, fails, run

client = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})
local = ollama.Client(host=URL)
GREEDY = {"temperature": 0, "num_predict": 100}
HELLO = [{"role": "user", "content": "Hello!"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER}}


def check_models_are_listed_and_shown():
    assert MODEL in [model.model for model in client.list().models]
    assert MODEL in [model.model for model in client.ps().models]
    shown = client.show(f"{MODEL}:latest")
    assert {"completion", "tools"} <= set(shown.capabilities), shown
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.context_length"] > 0, shown
    fails(ollama.ResponseError, "nothing-like-it", lambda: client.show("nothing-like-it"))


def check_a_chat_is_answered_whole_and_in_pieces():
    whole = client.chat(model=MODEL, messages=HELLO, options=GREEDY)
    assert whole.message.content and whole.done and whole.eval_count > 0, whole
    pieces = list(local.chat(model=MODEL, messages=HELLO, options=GREEDY, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert len(pieces) > 2 and pieces[-1].done and not pieces[0].done
    assert pieces[-1].prompt_eval_count == whole.prompt_eval_count


def check_a_prompt_is_answered():
    whole = local.generate(model=MODEL, prompt="Hello!", options=GREEDY)
    pieces = local.generate(model=MODEL, prompt="Hello!", options=GREEDY, stream=True)
    assert whole.response and "".join(piece.response for piece in pieces) == whole.response
    raw = local.generate(model=MODEL, prompt="Hello", raw=True, options={"temperature": 0, "num_predict": 4})
    assert raw.eval_count == 4 and raw.done_reason == "length", raw
    assert local.generate(model=MODEL).done_reason == "load"


def check_functions_are_called():
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = local.chat(model=MODEL, messages=messages, tools=[TOOL], options=GREEDY).message
    (call,) = answer.tool_calls
    assert call.function.name == "get_weather" and "Paris" in call.function.arguments["city"], answer
    messages += [answer, {"role": "tool", "tool_name": "get_weather", "content": '{"weather": "sunny", "temperature": 21}'}]
    answer = local.chat(model=MODEL, messages=messages, tools=[TOOL], options=GREEDY).message
    assert "sunny" in answer.content or "21" in answer.content, answer
    *_, last, _ = local.chat(model=MODEL, messages=messages[:1], tools=[TOOL], options=GREEDY, stream=True)
    assert last.message.tool_calls, last


def check_a_schema_is_kept_to():
    schema = {"type": "object", "properties": {"mood": {"enum": ["calm", "cross"]}}, "required": ["mood"], "additionalProperties": False}
    answer = local.chat(model=MODEL, messages=HELLO, format=schema, options=GREEDY)
    assert json.loads(answer.message.content)["mood"] in ("calm", "cross"), answer


def check_errors_are_texts_that_name_the_field():
    fails(ollama.ResponseError, "options.mirostat", lambda: client.chat(model=MODEL, messages=HELLO, options={"mirostat": 1}))
    fails(ollama.ResponseError, "nothing-like-it", lambda: client.chat(model="nothing-like-it", messages=HELLO))
    fails(ollama.ResponseError, MODEL, lambda: client.embed(model=MODEL, input="x"))


def status(path, headers, body=None):
    request = urllib.request.Request(f"{URL}{path}", headers=headers, data=body and json.dumps(body).encode())
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code


def check_other_origins_and_proxies_need_a_key():
    body = {"model": MODEL, "messages": HELLO, "stream": False, "options": {"num_predict": 1}}
    assert status("/api/version", {}) == 200
    assert status("/api/chat", {}, body) == 200
    assert status("/api/chat", {"Origin": "https://evil.example"}, body) == 403
    assert status("/api/chat", {"Host": "evil.example"}, body) == 403
    assert status("/api/tags", {"Origin": "https://evil.example"}) == 403
    assert status("/api/chat", {"X-Forwarded-For": "10.0.0.7"}, body) == 401
    assert status("/api/chat", {"Authorization": "Bearer wrong"}, body) == 401
    assert status("/v1/chat/completions", {}, body) == 401


run(globals())
