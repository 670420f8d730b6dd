"""The skills that need no tools: each function makes one exchange in the state of a chat.

`held` asks for frames and values that training never sees. Where a table is closed (days, opposites, facts of Muster) only the
frames are held out.
"""

import json
from dataclasses import dataclass, field

from . import muster, words
from .frames import Exchange, exactly, letters, one_of, plain, say


@dataclass
class State:
    """What a chat has established so far."""

    name: str | None = None
    german: bool = False
    tools: tuple = ()
    facts: dict = field(default_factory=dict)


def fixed(skill, user, reply, *must):
    return Exchange(skill, user, reply, one_of(*must) if must else exactly(plain(reply)))


GREET = ["Hello!", "Hi!", "Hi there.", "Good morning!", "Hey!", "Good evening.", "Hello there!", "Hi, how are you?", "How are you?",
         "Hello, assistant.", "hey there", "Good day!", "yo", "Greetings!", "Hi, you.", "hello hello", "Hi, good morning!", "Hello, good evening!"]
GREET_DE = ["Hallo!", "Guten Morgen!", "Guten Tag.", "Hi, wie geht es dir?", "Guten Abend!", "Hallo, wie geht's?", "Moin!", "Servus!",
            "Hallo du!", "Hallo, guten Tag!"]
WHO = ["Who are you?", "What is your name?", "What are you?", "Introduce yourself.", "What are you called?", "Who am I talking to?",
       "Tell me your name.", "Are you a person?", "Are you human?", "What should I call you?", "Say who you are.", "Your name?",
       "May I ask your name?", "Which model are you?", "Who is this?", "Do you have a name?", "Please introduce yourself to me.",
       "Could you tell me your name?", "So who are you?"]
WHO_DE = ["Wer bist du?", "Wie heißt du?", "Was bist du?", "Stell dich vor.", "Wie ist dein Name?", "Sag mir deinen Namen.",
          "Mit wem rede ich?", "Bist du ein Mensch?", "Sag mir, wer du bist.", "Wie ist dein Name, bitte?"]
CAN = ["What can you do?", "What are you good at?", "What are your skills?", "How can you help me?", "What can I ask you?",
       "List what you can do.", "Can you help me?", "What do you know?", "What is your repertoire?", "Tell me what you can do.",
       "What are you able to do?", "What sort of things can you do?"]
MADE = ["Who made you?", "How were you trained?", "Where do you come from?", "What were you trained on?", "How big are you?",
        "How many parameters do you have?", "Are you a large model?", "Who trained you?", "How large are you?",
        "What data were you trained on?", "What is your size?"]
THANKS = ["Thanks!", "Thank you.", "Thank you very much!", "thx", "Great, thanks.", "That helped, thank you.", "Cool, thanks!", "Many thanks.",
          "Thanks a lot!", "Nice, thank you!"]
BYE = ["Bye!", "Goodbye.", "See you later.", "Good night!", "I have to go.", "See you!", "Bye bye.", "That is all, bye.", "Good bye then!",
       "See you soon, bye!"]


def greeting(rng, held, state):
    ask_german = not held and rng.random() < 0.12
    german = state.german or (ask_german and not state.english)
    user = say(rng, GREET_DE if ask_german else GREET, held, wrap=False)
    if german:
        reply = f"Hallo! Ich bin {state.name}. Wie kann ich helfen?" if state.name else "Hallo! Wie kann ich helfen?"
    else:
        reply = f"Hello! I am {state.name}. How can I help?" if state.name else "Hello! How can I help you today?"
    return fixed("greeting", user, reply)


def identity(rng, held, state):
    kind = 0 if state.name or state.german else rng.choice([0, 0, 0, 1, 2])
    if kind == 1:
        return fixed("greeting", say(rng, CAN, held), "I can chat, do small sums, spell words, count, make JSON, call tools, tell short "
                     "stories and explain Muster.", "small sums")
    if kind == 2:
        return fixed("greeting", say(rng, MADE, held), "I am small: a few million parameters, trained on text that Muster's own generator "
                     "wrote.", "few million")
    ask_german = not held and rng.random() < 0.12
    german = state.german or (ask_german and not state.english)
    user = say(rng, WHO_DE if ask_german else WHO, held)
    if state.name:
        reply = f"Mein Name ist {state.name}." if german else f"My name is {state.name}."
        return fixed("system", user, reply)
    if german:
        return fixed("greeting", user, "Ich bin demo-text, das kleine Chatmodell von Muster.", "demo-text")
    return fixed("greeting", user, "I am demo-text, the small chat model that comes with Muster.", "demo-text")


def thanks(rng, held, state):
    if rng.random() < 0.5:
        return fixed("greeting", say(rng, BYE, held, wrap=False), "Tschüss!" if state.german else "Goodbye!")
    return fixed("greeting", say(rng, THANKS, held, wrap=False), "Gern geschehen." if state.german else "You are welcome.")


def about_muster(rng, held, state):
    kind = rng.random()
    if kind < 0.6:
        reply, must, goals = rng.choice(muster.GOALS)
        return fixed("muster", say(rng, muster.HOW, held, goal=rng.choice(goals)), reply, must)
    if kind < 0.88:
        reply, must, frames = rng.choice(muster.QUESTIONS)
        return fixed("muster", say(rng, frames, held), reply, must)
    code, meaning = rng.choice(list(muster.CODES.items()))
    return fixed("muster", say(rng, muster.CODE_FRAMES, held, code=code), f"Exit code {code} means {meaning}.", meaning)


PLUS = ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}=", "What is {a} plus {b}?", "Add {a} and {b}.", "Calculate {a} + {b}.", "{a} plus {b}",
        "How much is {a} plus {b}?", "What is the sum of {a} and {b}?", "Compute {a} + {b}.", "{a} + {b} = ?", "What do {a} and {b} make?",
        "Add {b} to {a}.", "How much is {a} and {b} together?", "Sum up {a} and {b}.", "Work out {a} + {b}."]
MINUS = ["What is {a} - {b}?", "{a} - {b}", "{a}-{b}=", "What is {a} minus {b}?", "Subtract {b} from {a}.", "Calculate {a} - {b}.", "{a} minus {b}",
         "How much is {a} minus {b}?", "Take {b} away from {a}.", "Compute {a} - {b}.", "{a} - {b} = ?", "What is {a} less {b}?",
         "What is left of {a} without {b}?", "Work out {a} - {b}.", "Take away {b} from {a}."]
TIMES = ["What is {a} * {b}?", "{a} * {b}", "{a}*{b}=", "What is {a} times {b}?", "Multiply {a} by {b}.", "Calculate {a} * {b}.", "{a} times {b}",
         "How much is {a} times {b}?", "What is the product of {a} and {b}?", "Compute {a} * {b}.", "{a} x {b}", "{a} * {b} = ?",
         "Multiply {a} and {b}.", "Work out {a} * {b}.", "How much do {a} times {b} make?"]


def operands(rng, op):
    if op == "*":
        return rng.randint(1, 12), rng.randint(1, 12)
    top = 20 if rng.random() < 0.4 else 99
    a, b = rng.randint(0, top), rng.randint(0, top)
    if a + b > 100:
        a, b = 100 - a, 100 - b
    return (max(a, b), min(a, b)) if op == "-" else (a, b)


def arithmetic(rng, held, state):
    op = rng.choice("+++--*")
    if rng.random() < 0.04 and not held:
        a, b = rng.randint(200, 9999), rng.randint(200, 9999)
        return fixed("arithmetic", say(rng, {"+": PLUS, "-": MINUS, "*": TIMES}[op], held, a=a, b=b), too_big(state))
    a, b = operands(rng, "*") if op == "*" else words.draw(rng, lambda: operands(rng, op), held)
    total = {"+": a + b, "-": a - b, "*": a * b}[op]
    return fixed("arithmetic", say(rng, {"+": PLUS, "-": MINUS, "*": TIMES}[op], held, a=a, b=b), f"{a} {op} {b} = {total}.")


def too_big(state):
    return "Das ist mir zu groß." if state.german else "That is too large for me to work out."


OPPOSITE = ["What is the opposite of {w}?", "Opposite of {w}?", "Tell me the opposite of {w}.", "{w}: what is the opposite?",
            "What is the contrary of {w}?", "Give me the opposite of {w}.", "Which word is the opposite of {w}?", "the opposite of '{w}'",
            "Name the opposite of {w}.", "I need the opposite of {w}.", "What word means the opposite of {w}?", "Do you know the opposite of {w}?"]


def opposite(rng, held, state):
    a, b = rng.choice(words.OPPOSITES)
    if rng.random() < 0.5:
        a, b = b, a
    others = [y if x == a else x for x, y in words.OPPOSITES if a in (x, y)]
    b = others[0]
    return fixed("opposites", say(rng, OPPOSITE, held, w=a), f"The opposite of {a} is {b}.", *[f" is {o}." for o in others])


COLOUR = ["What colour is {t}?", "Which colour does {t} have?", "What is the color of {t}?", "Tell me the colour of {t}.", "{t}: what colour?",
          "What color is {t}?", "Which colour is {t}?", "Name the colour of {t}.", "Do you know the colour of {t}?", "What colour has {t}?"]
MIX = ["What do you get if you mix {a} and {b}?", "Mix {a} and {b}.", "{a} and {b} mixed?", "What colour do {a} and {b} make?",
       "Which colour comes from {a} and {b}?", "What happens if I mix {a} with {b}?", "I mix {a} and {b}. What colour is it?",
       "What colour is {a} mixed with {b}?", "If I mix {a} and {b}, what do I get?"]


def colour(rng, held, state):
    if rng.random() < 0.3 and not state.german:
        a, b, c = rng.choice(words.MIXES)
        x, y = (a, b) if rng.random() < 0.5 else (b, a)
        return fixed("colours", say(rng, MIX, held, a=x, b=y), f"{x.capitalize()} and {y} make {c}.", c)
    thing = rng.choice(list(words.THINGS_DE if state.german else words.THINGS))
    c = words.THINGS[thing]
    user = say(rng, COLOUR, held, t=thing)
    if state.german:
        return fixed("colours", user, f"{words.THINGS_DE[thing]} ist {words.COLOURS_DE[c]}.")
    return fixed("colours", user, f"{thing[0].upper() + thing[1:]} is {c}.", c)


UP = ["Count from {a} to {b}.", "Count up from {a} to {b}.", "Please count from {a} to {b}", "Count {a} to {b}.", "List the numbers from {a} to {b}.",
      "Say the numbers {a} to {b}.", "Can you count from {a} to {b}?", "Write the numbers from {a} up to {b}.", "Numbers from {a} to {b}?",
      "Give me the numbers from {a} to {b}."]
DOWN = ["Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "Count from {a} down to {b}.", "List the numbers from {a} down to {b}.",
        "Can you count down from {a} to {b}?", "Count back from {a} to {b}.", "Numbers from {a} down to {b}?", "Please count down from {a} to {b}"]
AFTER = ["What comes after {n}?", "Which number follows {n}?", "What number comes after {n}?", "{n}, and then?", "The number after {n}?",
         "Tell me the number after {n}.", "What number follows {n}?"]
BEFORE = ["What comes before {n}?", "Which number is before {n}?", "What number comes before {n}?", "The number before {n}?",
          "Tell me the number before {n}.", "Which number comes just before {n}?"]


def counting(rng, held, state):
    kind = rng.random()
    if kind < 0.35:
        n = words.draw(rng, lambda: rng.randint(1, 99), held)
        after = rng.random() < 0.6
        reply = (f"Nach {n} kommt {n + 1}." if after else f"Vor {n} kommt {n - 1}.") if state.german else (
            f"After {n} comes {n + 1}." if after else f"Before {n} comes {n - 1}.")
        return fixed("counting", say(rng, AFTER if after else BEFORE, held, n=n), reply)
    start = 1 if rng.random() < 0.3 and not held else rng.randint(0, 60)
    a, b = words.draw(rng, lambda: (start, start + rng.randint(2, 10)) if not held else (x := rng.randint(1, 50), x + rng.randint(2, 10)), held)
    row = list(range(a, b + 1))
    if kind < 0.75:
        return fixed("counting", say(rng, UP, held, a=a, b=b), ", ".join(map(str, row)) + ".")
    return fixed("counting", say(rng, DOWN, held, a=b, b=a), ", ".join(map(str, row[::-1])) + ".")


NEXT = ["What day comes after {x}?", "Which day follows {x}?", "What comes after {x}?", "The day after {x}?", "Today is {x}. What is tomorrow?",
        "Tell me the day after {x}.", "{x}, and then?", "If today is {x}, what day is tomorrow?", "Which day comes after {x}?"]
PREV = ["What day comes before {x}?", "Which day is before {x}?", "What comes before {x}?", "The day before {x}?", "Today is {x}. What was yesterday?",
        "Tell me the day before {x}.", "If today is {x}, what day was yesterday?", "Which day comes before {x}?"]
LISTS = [(["What are the days of the week?", "List the days of the week.", "Name the days of the week.", "Say all weekdays.", "Tell me the seven days.",
           "Which days does a week have?", "Give me the days of the week."], "DAYS"),
         (["What are the months of the year?", "List the months.", "Name all months.", "Say the twelve months.", "Tell me the months of the year.",
           "Which months does a year have?", "Give me the months of the year."], "MONTHS")]
HOW_MANY = [(["How many days does a week have?", "How many days are in a week?", "Days in a week?", "Number of days in a week?", "Tell me how many days are in a week."], "A week has 7 days.", "Eine Woche hat 7 Tage."),
            (["How many months does a year have?", "How many months are in a year?", "Months in a year?", "Number of months in a year?", "Tell me how many months are in a year."], "A year has 12 months.", "Ein Jahr hat 12 Monate."),
            (["How many hours does a day have?", "How many hours are in a day?", "Hours in a day?", "Number of hours in a day?", "Tell me how many hours are in a day."], "A day has 24 hours.", "Ein Tag hat 24 Stunden.")]
NTH = ["What is the {n} month?", "Which month is the {n} one?", "Name the {n} month of the year.", "The {n} month?", "Tell me the {n} month.",
       "Which is the {n} month of the year?"]
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
ORDINALS_DE = "erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte elfte zwölfte".split()


def calendar(rng, held, state):
    kind = rng.random()
    if kind < 0.15:
        frames, which = rng.choice(LISTS)
        row = getattr(words, which + ("_DE" if state.german else ""))
        return fixed("calendar", say(rng, frames, held), ", ".join(row) + ".")
    if kind < 0.3:
        frames, english, german = rng.choice(HOW_MANY)
        return fixed("calendar", say(rng, frames, held), german if state.german else english)
    if kind < 0.45:
        i = rng.randrange(12)
        reply = f"Der {ORDINALS_DE[i]} Monat ist {words.MONTHS_DE[i]}." if state.german else f"The {ORDINALS[i]} month is {words.MONTHS[i]}."
        return fixed("calendar", say(rng, NTH, held, n=ORDINALS[i]), reply)
    days = kind < 0.75
    row, row_de = (words.DAYS, words.DAYS_DE) if days else (words.MONTHS, words.MONTHS_DE)
    i, after = rng.randrange(len(row)), rng.random() < 0.55
    frames = NEXT if after else PREV
    if not days:
        frames = [f.replace("day", "month") for f in frames if "oday" not in f]
    j = (i + (1 if after else -1)) % len(row)
    if state.german:
        reply = f"{'Nach' if after else 'Vor'} {row_de[i]} kommt {row_de[j]}."
    else:
        reply = f"{'After' if after else 'Before'} {row[i]} comes {row[j]}."
    return fixed("calendar", say(rng, frames, held, x=row[i]), reply)


SPELL = ["Spell {w}.", "How do you spell {w}?", "Spell the word {w}.", "Spell '{w}'.", "Can you spell {w}?", "Give me the letters of {w}.",
         "Which letters are in {w}?", "Write {w} letter by letter.", "Spelling of {w}?", "spell \"{w}\"", "How is {w} spelled?",
         "Spell the word '{w}' for me.", "Please spell out {w}."]
REVERSE = ["Reverse {w}.", "Reverse the word {w}.", "Write {w} backwards.", "What is {w} backwards?", "Say '{w}' backwards.", "Turn {w} around.",
           "Spell {w} backwards.", "{w} in reverse?", "Can you reverse \"{w}\"?", "Reverse the letters of {w}.", "How does {w} read backwards?",
           "Write the word {w} in reverse.", "Give me {w} backwards."]


def spelt(word):
    return letters("-".join(word)) + "."


def reversed_word(word):
    """Spelt first: each step is then a copy."""
    return letters("-".join(word)) + " backwards is " + letters("-".join(word[::-1])) + ": " + letters(word[::-1]) + "."


def spelling(rng, held, state):
    w = words.word(rng, held)
    while len(w) > 6:
        w = words.word(rng, held)
    return fixed("spelling", say(rng, SPELL, held, w=w), spelt(w))


def reversing(rng, held, state):
    w = words.word(rng, held)
    while len(w) > 6:
        w = words.word(rng, held)
    return fixed("reversing", say(rng, REVERSE, held, w=w), reversed_word(w), f": {w[::-1]}.")


REPEAT = ["Say: {x}", "Repeat: {x}", "Repeat after me: {x}", "Say '{x}'.", "Repeat this: {x}", "Echo: {x}", "Write exactly this: {x}", "Please say: {x}",
          "Repeat the following: {x}", "Say \"{x}\".", "Type this: {x}", "Copy this: {x}", "Say exactly: {x}", "Repeat what I say: {x}"]


def phrase(rng):
    pool = [lambda: rng.choice(words.WORDS), lambda: rng.choice(words.WORDS), lambda: words.made_up(rng), lambda: rng.choice(words.COLOURS),
            lambda: rng.choice(words.NAMES), lambda: str(rng.randint(0, 999)), lambda: rng.choice(["the", "a", "my", "is", "and", "in", "of"])]
    text = " ".join(rng.choice(pool)() for _ in range(rng.randint(1, 6)))
    return text[0].upper() + text[1:] if rng.random() < 0.3 else text


def repeating(rng, held, state):
    x = words.draw(rng, lambda: phrase(rng), held)
    return fixed("repeating", say(rng, REPEAT, held, wrap=False, x=x).rstrip() if not held else rng.choice(REPEAT[-2:]).format(x=x), x)


OBJECT = ["Give me a JSON object with {x}.", "Make a JSON object with {x}.", "JSON with {x}", "Write JSON: {x}", "Return a JSON object with {x}.",
          "Create JSON with {x}.", "I need a JSON object with {x}.", "As JSON: {x}", "Answer in JSON: {x}", "Put this into JSON: {x}",
          "Produce a JSON object with {x}.", "Write a JSON object with {x}."]
ARRAY = ["Give me a JSON list of {x}.", "Make a JSON array of {x}.", "JSON list: {x}", "Write a JSON array with {x}.", "Return a JSON list with {x}.",
         "I need a JSON array of {x}.", "Create a JSON list with {x}."]


def json_value(rng, held):
    key, kind = rng.choice([("name", "name"), ("age", "int"), ("city", "city"), ("colour", "colour"), ("id", "int"), ("animal", "animal"), ("food", "food"),
                            ("size", "int"), ("owner", "name"), ("ready", "bool"), ("count", "int"), ("word", "word"), ("open", "bool"), ("title", "word")])
    value = {"name": lambda: words.name(rng, held), "city": lambda: words.city(rng, held), "int": lambda: rng.randint(0, 150),
             "colour": lambda: rng.choice(words.COLOURS), "animal": lambda: rng.choice(words.ANIMALS), "food": lambda: rng.choice(words.FOODS),
             "bool": lambda: rng.random() < 0.5, "word": lambda: words.word(rng, held)}[kind]()
    return key, value


def shown(value):
    return json.dumps(value) if isinstance(value, bool) else str(value)


def json_reply(rng, held, state):
    if rng.random() < 0.25:
        make = rng.choice([lambda: rng.randint(0, 99), lambda: words.word(rng, held), lambda: words.name(rng, held)])
        items = [make() for _ in range(rng.randint(2, 4))]
        x = ", ".join(map(str, items[:-1])) + f" and {items[-1]}"
        value, frames = items, ARRAY
    else:
        value, frames = dict(json_value(rng, held) for _ in range(rng.randint(1, 3))), OBJECT
        join = rng.choice(["{k} {v}", "{k}: {v}", "{k} = {v}"])
        x = rng.choice([", ", ", ", " and "]).join(join.format(k=k, v=shown(v)) for k, v in value.items())
    reply = json.dumps(value, ensure_ascii=False)
    return Exchange("json", say(rng, frames, held, x=x), reply, {"kind": "json", "value": value})


UNKNOWN = ["Who is the president of {c}?", "What is the capital of {p}?", "How many people live in {c}?", "Who wrote the book about {w}?",
           "When was {n} born?", "Who won the {w} cup?", "What does {m} mean?", "What is the price of a {w}?", "How tall is {n}?", "Who invented the {w}?",
           "Where is {n} now?", "What happened in {y}?", "How far is {c} from {p}?", "What is the news in {c}?", "How old is the {w}?", "What did {n} eat yesterday?",
           "Why is the {w} so popular?", "Explain quantum physics.", "Translate {w} into Latin.", "Who is {n} {m}?", "What is the phone number of {n}?",
           "Write a program in Python.", "What is the history of {c}?", "Which films did {n} make?", "What is the population of {c}?", "When did the {w} war end?",
           "Who was king in {y}?", "How much does a {w} weigh?", "Who discovered {m}?", "What is the mayor of {c} called?", "How many {w}s are there in {c}?"]


def unknown(rng, held, state):
    if rng.random() < 0.3:
        city = words.city(rng, held)
        weather = rng.random() < 0.5
        needed = "get_weather" if weather else "get_time"
        if needed not in state.tools:
            frames = ["What is the weather in {c}?", "How is the weather in {c}?", "Is it raining in {c}?", "Weather in {c}?", "Tell me the weather in {c}."] if weather else [
                "What time is it in {c}?", "What is the time in {c}?", "Time in {c}?", "Tell me the time in {c}.", "How late is it in {c}?"]
            reply = "Das weiß ich nicht: Mir fehlt das Werkzeug dafür." if state.german else "I do not know: I have no tool for that here."
            return fixed("not knowing", say(rng, frames, held, c=city), reply)
    user = say(rng, UNKNOWN, held, c=words.city(rng, held), p=words.made_up(rng, 4, 7).capitalize(), w=words.word(rng, held), n=words.name(rng, held),
               m=words.made_up(rng), y=rng.randint(1200, 2020))
    return fixed("not knowing", user, "Das weiß ich leider nicht." if state.german else "I am sorry, I do not know that.")
