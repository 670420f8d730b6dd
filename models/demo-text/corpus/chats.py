"""Whole chats: a system prompt, some exchanges of mixed skills, and how a chat becomes text."""

import json
import random

from . import memory, skills, tools, words
from .frames import Frames, plain, say
from .skills import State

SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a friendly assistant.", "You are an assistant.", "Be helpful.", "Be brief and polite.",
          "You are a small chat model.", "Help the user.", "Answer the user's questions."]
NAMED = Frames(["Your name is {n}.", "You are {n}.", "You are called {n}.", "You are {n}, a helpful assistant.", "You are a helpful assistant called {n}.", "Your name is {n}. Be helpful.",
         "You are an assistant named {n}.", "Call yourself {n}.", "You go by the name {n}.", "You are a friendly assistant, and your name is {n}.", "The assistant is called {n}."],
    "Your name is {n}. Help the user.", "You are the assistant {n}.", "You are a small chat model called {n}.", "They call you {n}.",
    "You answer to the name {n}.", "You are a friendly assistant, called {n}.", "The name of the assistant is {n}.",
    "Use the name {n}.")
GERMAN = Frames(["Answer in German.", "Always answer in German.", "Reply in German.", "Antworte auf Deutsch.", "You speak German.", "Please answer in German only.",
          "Use German.", "Write in German.", "Antworte immer auf Deutsch.", "You answer everything in German."],
    "Speak German.", "You always speak German.", "Antworte nur auf Deutsch.", "Sprich Deutsch.",
    "You reply in German.", "Deutsch bitte.", "Antworte auf Deutsch, bitte.", "Du sprichst Deutsch.")
ENGLISH = Frames(["Answer in English.", "Always answer in English.", "Reply in English.", "You speak English.", "Use English.", "You answer everything in English."],
    "Speak English.", "Write in English.", "You reply in English.", "Please answer in English only.")

PLAIN_SKILLS = [(skills.greeting, 3), (skills.identity, 4), (skills.thanks, 2), (skills.about_muster, 13), (skills.arithmetic, 16), (skills.opposite, 6), (skills.colour, 4),
                (skills.counting, 15), (skills.calendar, 6), (skills.spelling, 14), (skills.repeating, 9), (skills.json_reply, 11),
                (skills.unknown, 7), (memory.tell, 12), (memory.ask, 1), (memory.story, 2)]
GERMAN_SKILLS = [(skills.greeting, 3), (skills.identity, 4), (skills.thanks, 2), (skills.arithmetic, 1), (skills.colour, 3), (skills.counting, 2), (skills.calendar, 4), (skills.unknown, 2)]
TOOL_SKILLS = [(tools.calling, 7), (tools.using, 6)]


def pick(rng, table):
    return rng.choices([f for f, _ in table], [w for _, w in table])[0]


def system_prompt(rng, held, state):
    """Draws a system prompt and notes in `state` what it asks for."""
    parts = []
    if state.name:
        parts.append(say(rng, NAMED, held, wrap=False, n=state.name))
    elif rng.random() < 0.5:
        parts.append(rng.choice(SYSTEM))
    if state.german or state.english:
        parts.append(say(rng, GERMAN if state.german else ENGLISH, held, wrap=False))
    if rng.random() < 0.2:
        parts.reverse()
    return " ".join(parts)


def tool_list(rng, held=False):
    names = [n for n in tools.TOOLS if rng.random() < 0.75] or ["get_weather"]
    rng.shuffle(names)
    return [described(rng, n) for n in names]


def described(rng, name):
    tool = json.loads(json.dumps(tools.TOOLS[name]))
    tool["function"]["description"] = rng.choice(tools.DESCRIPTIONS[name])
    return tool


def begin(rng, held=False, name=0.18, german=0.12, with_tools=0.24):
    """An empty chat: its state, its messages so far, its tools."""
    state = State()
    state.english = False
    kind = rng.random()
    if kind < with_tools:
        offered = tool_list(rng)
        state.tools = tuple(t["function"]["name"] for t in offered)
    else:
        offered = []
        state.german = kind < with_tools + german
        state.english = not state.german and kind < with_tools + german + 0.03
    if rng.random() < name:
        state.name = words.name(rng, held)
    prompt = system_prompt(rng, held, state)
    messages = [{"role": "system", "content": prompt}] if prompt else []
    return state, messages, offered


def extend(rng, messages, exchange):
    messages.append({"role": "user", "content": exchange.user})
    messages.extend(exchange.before_reply)
    messages.append({"role": "assistant", "content": exchange.reply})


def turn(rng, state, held=False):
    """One exchange that fits the chat."""
    if state.tools and rng.random() < 0.7:
        skill = pick(rng, TOOL_SKILLS)
    elif state.german:
        skill = pick(rng, GERMAN_SKILLS)
    elif state.name and rng.random() < 0.3:
        skill = skills.identity
    elif state.facts and rng.random() < 0.35:
        skill = memory.ask
    else:
        skill = pick(rng, PLAIN_SKILLS)
    if "calculator" in state.tools and skill is skills.arithmetic:
        skill = tools.calling
    return skill(rng, held, state)


def chat(rng):
    """A chat to train on: (messages, tools)."""
    state, messages, offered = begin(rng)
    turns = rng.choices([1, 2, 3, 4, 6, 10, 16], [30, 26, 20, 12, 7, 3, 1])[0]
    for _ in range(min(turns, 6) if offered else turns):
        exchange = turn(rng, state)
        if exchange.skill == "calling tools" and exchange.expect["kind"] == "tools":
            # A chat may end with calls, but it never goes on without their results.
            extend(rng, messages, exchange)
            return messages, offered
        extend(rng, messages, exchange)
    if state.facts and rng.random() < 0.8:
        extend(rng, messages, memory.ask(rng, False, state))
    return messages, offered


def segments(messages, offered):
    """The template's text as (text, is it the assistant's own): what the jinja template renders, cut where the speaker changes."""
    out = [("<|bos|>", False)]
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    if system or offered:
        out.append(("<|system|>" + system, False))
        if offered:
            out.append((("\n" if system else "") + "Tools:" + "".join(signature(tool) for tool in offered), False))
        out.append(("<|end|>", False))
    for message in messages[messages[0]["role"] == "system" :]:
        out.append((f"<|{message['role']}|>", False))
        out.append((message["content"], message["role"] == "assistant"))
        out.append(("<|end|>", message["role"] == "assistant"))
    return out


def signature(tool):
    function = tool["function"]
    parameters = ", ".join(f"{name}: {about['type']}" for name, about in function["parameters"]["properties"].items())
    return f"\n{function['name']}({parameters}): {function['description']}"


def text(messages, offered):
    return plain("".join(part for part, _ in segments(messages, offered)))


if __name__ == "__main__":
    for seed in range(20):
        print(text(*chat(random.Random(seed))), "\n")
