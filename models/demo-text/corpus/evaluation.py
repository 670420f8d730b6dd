"""The evaluation: prompts of every skill with frames and values that training never sees, and what a right answer is."""

import random

from . import chats, frames, memory, skills, tools
from .chats import begin, extend, turn

PROMPTS = 30


def alone(make):
    """A prompt of one skill, in half of the cases after other exchanges of the same chat."""

    def build(rng):
        state, messages, offered = begin(rng, held=True, name=0, german=0, with_tools=0)
        if rng.random() < 0.5:
            extend(rng, messages, turn(rng, state))
        return messages, offered, make(rng, True, state)

    return build


def named(rng):
    state, messages, offered = begin(rng, held=True, name=1, german=0, with_tools=0)
    if rng.random() < 0.5:
        extend(rng, messages, turn(rng, state))
    return messages, offered, skills.identity(rng, True, state)


def german(rng):
    state, messages, offered = begin(rng, held=True, name=0.3, german=1, with_tools=0)
    if rng.random() < 0.5:
        extend(rng, messages, turn(rng, state))
    make = rng.choice([skills.greeting, skills.identity, skills.thanks, skills.colour, skills.counting, skills.calendar, skills.unknown])
    return messages, offered, make(rng, True, state)


def remembered(rng):
    state, messages, offered = begin(rng, held=True, name=0.2, german=0, with_tools=0)
    for _ in range(rng.randint(1, 2)):
        extend(rng, messages, memory.tell(rng, True, state))
    for _ in range(rng.randint(0, 2)):
        extend(rng, messages, chats.pick(rng, [(skills.arithmetic, 1), (skills.colour, 1), (skills.spelling, 1), (skills.about_muster, 1)])(rng, False, state))
    return messages, offered, memory.ask(rng, True, state)


def with_tools(make):
    def build(rng):
        state, messages, offered = begin(rng, held=True, name=0.2, with_tools=1)
        if rng.random() < 0.3:
            extend(rng, messages, tools.using(rng, False, state))
        return messages, offered, make(rng, True, state)

    return build


SKILLS = {
    "greeting": alone(lambda rng, held, state: rng.choice([skills.greeting, skills.identity, skills.thanks])(rng, held, state)),
    "muster": alone(skills.about_muster), "arithmetic": alone(skills.arithmetic), "opposites": alone(skills.opposite), "colours": alone(skills.colour),
    "counting": alone(skills.counting), "calendar": alone(skills.calendar),
    "repeating": alone(skills.repeating), "names": named, "language": german, "memory": remembered, "stories": alone(memory.story),
    "json": alone(skills.json_reply), "calling tools": with_tools(tools.calling), "using tools": with_tools(tools.using), "not knowing": alone(skills.unknown),
}


def prompts(seed=7, count=PROMPTS):
    """All prompts, each with the reply that training would give (`reply`), which is not part of the file."""
    out = []
    for skill, build in SKILLS.items():
        rng, seen = random.Random(f"{seed} {skill}"), set()
        while len(seen) < count:
            messages, offered, exchange = build(rng)
            messages = messages + [{"role": "user", "content": exchange.user}] + exchange.before_reply
            key = str(messages)
            if key not in seen:
                seen.add(key)
                out.append({"skill": skill, "messages": messages, "tools": offered, "expect": exchange.expect, "reply": exchange.reply})
    return out


def passes(expect, answer):
    """The rule of `worker eval`, for use while training."""
    import json

    kind = expect["kind"]
    if kind == "exact":
        return answer.strip() == expect["text"].strip()
    if kind == "contains":
        return all(m in answer for m in expect.get("all", [])) and ("any" not in expect or any(m in answer for m in expect["any"]))
    if kind == "story":
        return all(m in answer for m in expect["all"]) and answer.count(". ") + 1 >= expect["sentences"] and answer.endswith(".")
    try:
        if kind == "json":
            return json.loads(answer) == expect["value"]
        calls = [json.loads(part.split("</tool_call>")[0]) for part in answer.split("<tool_call>")[1:]]
        return calls == expect["calls"]
    except ValueError:
        return False
