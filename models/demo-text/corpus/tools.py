"""Calls of tools and answers made from their results."""

import json

from . import words
from .frames import Exchange, Frames, say


def definition(name, description, parameter, meaning):
    properties = {parameter: {"type": "string", "description": meaning}}
    parameters = {"type": "object", "properties": properties, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = {
    "get_weather": definition("get_weather", "Tells the weather in a city.", "city", "The city."),
    "calculator": definition("calculator", "Works out an expression.", "expression", "The expression."),
    "get_time": definition("get_time", "Tells the time in a city.", "city", "The city."),
}
DESCRIPTIONS = {
    "get_weather": ["Tells the weather in a city.", "Get the current weather for a city.", "The weather of a place.", "Weather lookup"],
    "calculator": ["Works out an expression.", "Evaluate an arithmetic expression.", "A calculator.", "Does arithmetic"],
    "get_time": ["Tells the time in a city.", "Get the current time in a city.", "The local time of a place.", "Time lookup"],
}

WEATHER = Frames(["What is the weather in {c}?", "How is the weather in {c}?", "Weather in {c}?", "Tell me the weather in {c}.", "Is it raining in {c}?", "Is it cold in {c}?",
           "What is the weather like in {c}?", "Look up the weather in {c}.", "Do I need a coat in {c}?", "How warm is it in {c}?", "Is it sunny in {c} today?",
           "What's the weather in {c} right now?", "Check the weather for {c}."],
    "Weather for {c}, please.", "How cold is it in {c}?", "What's the weather like in {c}?", "Does it snow in {c}?", "Is it windy in {c} now?",
    "Give me the weather in {c}.", "What is the weather in {c} now?", "What's the weather for {c}?",
    "I need the weather in {c}.")
TIME = Frames(["What time is it in {c}?", "What is the time in {c}?", "Time in {c}?", "Tell me the time in {c}.", "How late is it in {c}?", "Look up the time in {c}.",
        "What is the local time in {c}?", "Which time is it in {c}?", "What's the time in {c} right now?", "Check the time in {c}."],
    "Time for {c}, please.", "What's the time in {c}?", "Give me the time in {c}.", "What is the time in {c} now?",
    "Please look at the time in {c}.", "The clock in {c} says what?", "I need the time in {c}.", "Do you know what time it is in {c}?")
CALC = Frames(["What is {e}?", "Calculate {e}.", "{e}", "Compute {e}.", "Work out {e}.", "How much is {e}?", "Use the calculator for {e}.", "{e} = ?", "Please calculate {e}.",
        "Evaluate {e}.", "What does {e} give?"],
    "Find {e}.", "Solve {e}.", "I need {e}.", "How much does {e} make?", "Let the calculator do {e}.", "{e}, please.",
    "Give me {e}.", "What does {e} come to?", "Type {e} into the calculator.",
    "Put {e} into your calculator, please.", "What value has {e} in the end?", "I have {e} here, what is it?", "Is {e} much? Work it out.", "What do you get for {e}?", "The result of {e}?", "Tell me {e}.")
TWO_WEATHER = Frames(["What is the weather in {a} and {b}?", "Weather in {a} and in {b}?", "Compare the weather in {a} and {b}.", "How is the weather in {a} and {b}?",
               "Tell me the weather in {a} and in {b}.", "Get the weather for {a} and {b}."],
    "Weather for {a} and {b}, please.", "What's the weather in {a} and {b}?", "Check the weather in {a} and in {b}.",
    "I need the weather in {a} and {b}.", "Look up the weather in {a} and {b}.", "Is it cold in {a} and in {b}?",
    "Give me the weather in {a} and {b}.")
THREE_WEATHER = Frames(["What is the weather in {a}, {b} and {c}?", "Weather in {a}, {b} and {c}?", "How is the weather in {a}, in {b} and in {c}?", "Tell me the weather in {a}, {b} and {c}."],
    "What's the weather in {a}, {b} and {c}?", "Check the weather in {a}, {b} and {c}.", "I need the weather in {a}, in {b} and in {c}.",
    "Compare the weather in {a}, {b} and {c}.", "Tell me how the weather is in {a}, {b} and {c}.", "Get the weather in {a}, {b} and {c}.")
TWO_TIME = Frames(["What time is it in {a} and {b}?", "Time in {a} and in {b}?", "Tell me the time in {a} and {b}.", "What is the time in {a} and in {b}?", "How late is it in {a} and {b}?"],
    "Time for {a} and {b}, please.", "Look up the time in {a} and {b}.", "I need the time in {a} and {b}.",
    "What's the time in {a} and {b}?", "Give me the time in {a} and in {b}.")
BOTH = Frames(["What is the weather in {a} and the time in {b}?", "Tell me the weather in {a} and the time in {b}.", "Weather in {a} and time in {b}?", "How is the weather in {a}, and what time is it in {b}?",
        "I need the weather in {a} and the time in {b}."],
    "Look up the weather in {a} and the time in {b}.", "Give me the weather in {a} and the time in {b}.",
    "What's the weather in {a}, and what's the time in {b}?", "Check the weather in {a} and the time in {b}.",
    "Tell me how the weather is in {a} and how late it is in {b}.", "I want the weather in {a} and the time in {b}.",
    "Weather for {a} and the time for {b}, please.")
WITH_SUM = Frames(["What is the weather in {a}, and what is {e}?", "Tell me the weather in {a} and calculate {e}.", "Weather in {a}, and {e}?", "How is the weather in {a} and how much is {e}?"],
    "What's the weather in {a}, and how much is {e}?", "Check the weather in {a} and work out {e}.", "How is the weather in {a}, and what is {e}?",
    "Give me the weather in {a} and {e}.", "Is it cold in {a}, and how much is {e}?", "Look up the weather in {a} and compute {e}.")

SKIES = ["sun", "rain", "snow", "fog", "wind", "clouds", "storms", "clear skies", "drizzle", "hail"]


def expression(rng, held):
    def make():
        top = rng.choice([20, 99, 999, 9999])
        text = f"{rng.randint(1, top)} {rng.choice('+-*/')} {rng.randint(1, top)}"
        return text + f" {rng.choice('+-*')} {rng.randint(1, 99)}" if rng.random() < 0.15 else text
    return words.draw(rng, make, held)


def plan(rng, held, tools):
    """What is asked, as (user text, calls): one call, or several where the tools allow."""
    city = lambda: words.city(rng, held)
    weather = lambda c: ("get_weather", {"city": c})
    time = lambda c: ("get_time", {"city": c})
    options = []
    a, b, c, e = city(), city(), city(), expression(rng, held)
    if "get_weather" in tools:
        options += [(WEATHER, [weather(c)])] * 3 + [(TWO_WEATHER, [weather(a), weather(b)]), (THREE_WEATHER, [weather(a), weather(b), weather(c)])]
    if "get_time" in tools:
        options += [(TIME, [time(c)])] * 3 + [(TWO_TIME, [time(a), time(b)])]
    if "calculator" in tools:
        options += [(CALC, [("calculator", {"expression": e})])] * 3
    if {"get_weather", "get_time"} <= set(tools):
        options += [(BOTH, [weather(a), time(b)])] * 2
    if {"get_weather", "calculator"} <= set(tools):
        options += [(WITH_SUM, [weather(a), ("calculator", {"expression": e})])]
    frames, calls = rng.choice(options)
    return say(rng, frames, held, a=a, b=b, c=c, e=e), calls


def calls_text(calls):
    one = '<tool_call>{{"name": "{}", "arguments": {}}}</tool_call>'
    return "\n".join(one.format(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls)


def answered(rng, name, arguments):
    """A tool's result and the sentence that the model makes of it."""
    if name == "get_weather":
        city, degrees, sky = arguments["city"], rng.randint(-15, 39), rng.choice(SKIES)
        shapes = [json.dumps({"city": city, "temperature": degrees, "sky": sky}), json.dumps({"temperature": degrees, "sky": sky}),
                  json.dumps({"temperature": degrees, "condition": sky}), f"{degrees} degrees, {sky}", f"{sky}, {degrees} degrees"]
        return rng.choice(shapes), f"In {city} it is {degrees} degrees with {sky}.", [str(degrees), sky, city]
    if name == "get_time":
        city, time = arguments["city"], f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        shapes = [json.dumps({"city": city, "time": time}), json.dumps({"time": time}), time]
        return rng.choice(shapes), f"It is {time} in {city}.", [time, city]
    value = str(rng.randint(-999, 99999)) if rng.random() < 0.7 else f"{rng.randint(0, 99)}.{rng.randint(1, 99)}"
    shapes = [value, json.dumps({"result": value}), f'{{"result": {value}}}']
    return rng.choice(shapes), f"{arguments['expression']} = {value}.", [value]


def calling(rng, held, state):
    user, calls = plan(rng, held, state.tools)
    expect = {"kind": "tools", "calls": [{"name": n, "arguments": a} for n, a in calls]}
    return Exchange("calling tools", user, calls_text(calls), expect)


def using(rng, held, state):
    """The whole of it: the calls, their results, and the answer, which is what is checked."""
    user, calls = plan(rng, held, state.tools)
    results, sentences, must = zip(*(answered(rng, *call) for call in calls))
    asked = {"role": "assistant", "content": calls_text(calls), "calls": calls}
    between = [asked] + [{"role": "tool", "content": result} for result in results]
    expect = {"kind": "contains", "all": [m for group in must for m in group]}
    return Exchange("using tools", user, " ".join(sentences), expect, between)
