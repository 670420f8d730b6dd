"""The skills that need no tools: each function makes one exchange in the state of a chat.

`held` asks for frames and values that training never sees. Where a table is closed (days, opposites, facts of Muster) only the
frames are held out.
"""

import json
from dataclasses import dataclass, field

from . import muster, words
from .frames import Exchange, Frames, exactly, letters, one_of, plain, say


@dataclass
class State:
    """What a chat has established so far."""

    name: str | None = None
    german: bool = False
    tools: tuple = ()
    facts: dict = field(default_factory=dict)


def fixed(skill, user, reply, *must):
    return Exchange(skill, user, reply, one_of(*must) if must else exactly(plain(reply)))


GREET = Frames(["Hello!", "Hi!", "Hi there.", "Good morning!", "Hey!", "Good evening.", "Hello there!", "Hi, how are you?", "How are you?",
         "Hello, assistant.", "hey there", "Good day!", "yo", "Greetings!", "Hi, you.", "hello hello", "Hi, good morning!", "Hello, good evening!"],
    "Hello you!", "hi hi", "Good afternoon!", "Hey you!", "Hello, how is it going?", "Hi, my friend!", "Welcome!", "Good morning, assistant.",
    "Hi, good day!", "hello", "Nice to see you!", "Hello again!", "Hello, good afternoon!", "Hi, hello!")
GREET_DE = Frames(["Hallo!", "Guten Morgen!", "Guten Tag.", "Hi, wie geht es dir?", "Guten Abend!", "Hallo, wie geht's?", "Moin!", "Servus!",
            "Hallo du!", "Hallo, guten Tag!"],
    "Hallo zusammen!", "Grüß dich!", "Schönen guten Tag!", "Hallo, guten Abend!", "Na du!", "Hallo, Assistent.")
WHO = Frames(["Who are you?", "What is your name?", "What are you?", "Introduce yourself.", "What are you called?", "Who am I talking to?",
       "Tell me your name.", "Are you a person?", "Are you human?", "What should I call you?", "Say who you are.", "Your name?",
       "May I ask your name?", "Which model are you?", "Who is this?", "Do you have a name?", "Please introduce yourself to me.",
       "Could you tell me your name?", "So who are you?"],
    "What is your name, please?", "Can you introduce yourself?", "Could you say who you are?", "Please tell me your name.", "And who are you?",
    "So what is your name?", "Do you know your name?", "Hey, who are you?", "Would you tell me who you are?", "May I know your name?", "What may I call you?")
WHO_DE = Frames(["Wer bist du?", "Wie heißt du?", "Was bist du?", "Stell dich vor.", "Wie ist dein Name?", "Sag mir deinen Namen.",
          "Mit wem rede ich?", "Bist du ein Mensch?", "Sag mir, wer du bist.", "Wie ist dein Name, bitte?"],
    "Sag, wie heißt du?", "Und wer bist du?", "Wie soll ich dich nennen?", "Stell dich bitte vor.", "Wie lautet dein Name?",
    "Sag mir, wie du heißt.", "Wer bist du, bitte?")
CAN = Frames(["What can you do?", "What are you good at?", "What are your skills?", "How can you help me?", "What can I ask you?",
       "List what you can do.", "Can you help me?", "What do you know?", "What is your repertoire?", "Tell me what you can do.",
       "What are you able to do?", "What sort of things can you do?"],
    "What are your abilities?", "What can you do for me?", "What kind of help can you give?", "Which things can you do?",
    "What sort of help do you offer?", "What are you made for?", "Show me what you can do.", "What do you do?", "Which skills do you have?")
MADE = Frames(["Who made you?", "How were you trained?", "Where do you come from?", "What were you trained on?", "How big are you?",
        "How many parameters do you have?", "Are you a large model?", "Who trained you?", "How large are you?",
        "What data were you trained on?", "What is your size?"],
    "Who built you?", "How were you made?", "Which data did you learn from?", "What is the number of your parameters?", "How small are you?",
    "What did you learn from?", "What data were you made from?", "Tell me your size.", "How many weights do you have?", "Your size?",
    "Where did you learn this?", "What size are you?")
THANKS = Frames(["Thanks!", "Thank you.", "Thank you very much!", "thx", "Great, thanks.", "That helped, thank you.", "Cool, thanks!", "Many thanks.",
          "Thanks a lot!", "Nice, thank you!"],
    "Thanks, that is nice.", "Perfect, thank you.", "Thank you so much!", "Thanks, good job.", "Nice!", "Great, thank you!", "Thanks again.",
    "Super, thanks!")
BYE = Frames(["Bye!", "Goodbye.", "See you later.", "Good night!", "I have to go.", "See you!", "Bye bye.", "That is all, bye.", "Good bye then!",
       "See you soon, bye!"],
    "Bye for now!", "See you tomorrow!", "Good bye!", "I am leaving, bye.", "Bye, see you!", "OK, bye.", "See you next time!", "Farewell!",
    "Until tomorrow, bye!")


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
        return fixed("greeting", say(rng, CAN, held), "I can chat, do small sums, count, make JSON, call tools, tell short "
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


PLUS = Frames(["What is {a} + {b}?", "{a} + {b}", "{a}+{b}=", "What is {a} plus {b}?", "Add {a} and {b}.", "Calculate {a} + {b}.", "{a} plus {b}",
        "How much is {a} plus {b}?", "What is the sum of {a} and {b}?", "Compute {a} + {b}.", "{a} + {b} = ?", "What do {a} and {b} make?",
        "Add {b} to {a}.", "How much is {a} and {b} together?", "Sum up {a} and {b}.", "Work out {a} + {b}."],
    "{a} and {b}?", "What is {a} and {b}?", "Total of {a} and {b}?", "Find {a} + {b}.", "Solve {a} + {b}.", "What does {a} + {b} make?",
    "{a} add {b}", "What do you get for {a} plus {b}?", "How much do {a} and {b} make?", "Count {a} and {b} up.", "Join {a} and {b}.", "If I have {a} and get {b}, how many is that?", "Make one number of {a} and {b}.",
    "Put {a} and {b} into one sum.",
    "Plus: {a} and {b}.")
MINUS = Frames(["What is {a} - {b}?", "{a} - {b}", "{a}-{b}=", "What is {a} minus {b}?", "Subtract {b} from {a}.", "Calculate {a} - {b}.", "{a} minus {b}",
         "How much is {a} minus {b}?", "Take {b} away from {a}.", "Compute {a} - {b}.", "{a} - {b} = ?", "What is {a} less {b}?",
         "What is left of {a} without {b}?", "Work out {a} - {b}.", "Take away {b} from {a}."],
    "Find {a} - {b}.", "Solve {a} - {b}.", "Take {b} from {a}.", "Remove {b} from {a}.", "What does {a} - {b} make?", "From {a} subtract {b}.",
    "What remains of {a} after taking {b}?", "How much is left of {a} if I take {b}?", "What is the difference of {a} and {b}?",
    "Minus: {b} from {a}.", "Subtract {b} off {a}.", "{a} less {b}")
TIMES = Frames(["What is {a} * {b}?", "{a} * {b}", "{a}*{b}=", "What is {a} times {b}?", "Multiply {a} by {b}.", "Calculate {a} * {b}.", "{a} times {b}",
         "How much is {a} times {b}?", "What is the product of {a} and {b}?", "Compute {a} * {b}.", "{a} x {b}", "{a} * {b} = ?",
         "Multiply {a} and {b}.", "Work out {a} * {b}.", "How much do {a} times {b} make?"],
    "Find {a} * {b}.", "Solve {a} * {b}.", "What does {a} * {b} make?", "Multiply {a} with {b}.", "{a} multiplied by {b}", "What is {a} x {b}?",
    "How much is {a} * {b}?", "The product of {a} and {b}?", "Times: {a} and {b}.")


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
    op, a, b = draw_sum(rng, held, op)
    return fixed("arithmetic", say(rng, {"+": PLUS, "-": MINUS, "*": TIMES}[op], held, a=a, b=b), sum_of(op, a, b))


def draw_sum(rng, held, op=None):
    op = op or rng.choice("+++--*")
    return op, *(operands(rng, "*") if op == "*" else words.draw(rng, lambda: operands(rng, op), held))


def sum_of(op, a, b):
    return f"{a} {op} {b} = { {'+': a + b, '-': a - b, '*': a * b}[op]}."


def too_big(state):
    return "Das ist mir zu groß." if state.german else "That is too large for me to work out."


OPPOSITE = Frames(["What is the opposite of {w}?", "Opposite of {w}?", "Tell me the opposite of {w}.", "{w}: what is the opposite?",
            "What is the contrary of {w}?", "Give me the opposite of {w}.", "Which word is the opposite of {w}?", "the opposite of '{w}'",
            "Name the opposite of {w}.", "I need the opposite of {w}.", "What word means the opposite of {w}?", "Do you know the opposite of {w}?"],
    "What is {w} the opposite of?", "The contrary of {w}?", "Say the opposite of {w}.", "Can you name the opposite of {w}?",
    "Which word means the contrary of {w}?", "What would be the opposite of {w}?", "Do you know the contrary of {w}?")


def opposite(rng, held, state):
    a, b = rng.choice(words.OPPOSITES)
    if rng.random() < 0.5:
        a, b = b, a
    others = [y if x == a else x for x, y in words.OPPOSITES if a in (x, y)]
    b = others[0]
    return fixed("opposites", say(rng, OPPOSITE, held, w=a), f"The opposite of {a} is {b}.", *[f" is {o}." for o in others])


COLOUR = Frames(["What colour is {t}?", "Which colour does {t} have?", "What is the color of {t}?", "Tell me the colour of {t}.", "{t}: what colour?",
          "What color is {t}?", "Which colour is {t}?", "Name the colour of {t}.", "Do you know the colour of {t}?", "What colour has {t}?"],
    "Say the colour of {t}.", "Which color does {t} have?", "What is the usual colour of {t}?", "What colour would {t} be?",
    "Do you know what colour {t} is?", "I want to know the colour of {t}.", "Can you name the colour of {t}?")
MIX = Frames(["What do you get if you mix {a} and {b}?", "Mix {a} and {b}.", "{a} and {b} mixed?", "What colour do {a} and {b} make?",
       "Which colour comes from {a} and {b}?", "What happens if I mix {a} with {b}?", "I mix {a} and {b}. What colour is it?",
       "What colour is {a} mixed with {b}?", "If I mix {a} and {b}, what do I get?"],
    "What is {a} with {b}?", "I mix {a} with {b}. What do I get?", "What do I get from {a} and {b}?", "Mixing {a} and {b} gives what?",
    "{a} plus {b}: which colour?", "When I mix {a} and {b}, which colour comes out?")


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


UP = Frames(["Count from {a} to {b}.", "Count up from {a} to {b}.", "Please count from {a} to {b}", "Count {a} to {b}.", "List the numbers from {a} to {b}.",
      "Say the numbers {a} to {b}.", "Can you count from {a} to {b}?", "Write the numbers from {a} up to {b}.", "Numbers from {a} to {b}?",
      "Give me the numbers from {a} to {b}."],
    "Count on from {a} to {b}.", "Write down {a} to {b}.", "Please count {a} to {b}.", "All numbers from {a} to {b}.", "Go from {a} to {b}.",
    "I need the numbers from {a} to {b}.", "Show the numbers {a} to {b}.", "Count upwards from {a} to {b}.", "Start at {a} and count to {b}.",
    "please count up from {a} to {b}")
DOWN = Frames(["Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "Count from {a} down to {b}.", "List the numbers from {a} down to {b}.",
        "Can you count down from {a} to {b}?", "Count back from {a} to {b}.", "Numbers from {a} down to {b}?", "Go backwards from {a} to {b}."],
    "Count downwards from {a} to {b}.", "Go down from {a} to {b}.", "I need the numbers from {a} down to {b}.",
    "Please count backwards from {a} to {b}.", "Please count from {a} down to {b}", "Start at {a} and count down to {b}.",
    "Show the numbers {a} down to {b}.", "please go down from {a} to {b}", "Count in reverse from {a} to {b}.", "Backwards from {a} to {b}, please.", "Which numbers lie from {a} down to {b}?",
    "Write the numbers from {a} down to {b}.")
AFTER = Frames(["What comes after {n}?", "Which number follows {n}?", "What number comes after {n}?", "{n}, and then?", "The number after {n}?",
         "Tell me the number after {n}.", "What number follows {n}?"],
    "{n} is followed by?", "What is the next number after {n}?", "Name the number after {n}.", "Which number is next after {n}?",
    "What is one more than {n}?", "Which number comes right after {n}?", "Which number do I say after {n}?")
BEFORE = Frames(["What comes before {n}?", "Which number is before {n}?", "What number comes before {n}?", "The number before {n}?",
          "Tell me the number before {n}.", "Which number comes just before {n}?"],
    "Name the number before {n}.", "What is right before {n}?", "Which number comes before {n}?",
    "What is one less than {n}?", "What number is right before {n}?", "Which number do I say before {n}?")


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


NEXT = Frames(["What day comes after {x}?", "Which day follows {x}?", "What comes after {x}?", "The day after {x}?", "Today is {x}. What is tomorrow?",
        "Tell me the day after {x}.", "{x}, and then?", "If today is {x}, what day is tomorrow?", "Which day comes after {x}?"],
    "Name the day after {x}.", "What day is after {x}?", "Which day is next after {x}?", "Which day comes right after {x}?",
    "What day follows {x}?")
PREV = Frames(["What day comes before {x}?", "Which day is before {x}?", "What comes before {x}?", "The day before {x}?", "Today is {x}. What was yesterday?",
        "Tell me the day before {x}.", "If today is {x}, what day was yesterday?", "Which day comes before {x}?"],
    "Name the day before {x}.", "What day is before {x}?", "Which day comes right before {x}?", "Which day is just before {x}?",
    "What day stands before {x}?")
LISTS = [(["What are the days of the week?", "List the days of the week.", "Name the days of the week.", "Say all weekdays.", "Tell me the seven days.",
           "Which days does a week have?", "Give me the days of the week."], "DAYS"),
         (["What are the months of the year?", "List the months.", "Name all months.", "Say the twelve months.", "Tell me the months of the year.",
           "Which months does a year have?", "Give me the months of the year."], "MONTHS")]
HOW_MANY = [(["How many days does a week have?", "How many days are in a week?", "Days in a week?", "Number of days in a week?", "Tell me how many days are in a week."], "A week has 7 days.", "Eine Woche hat 7 Tage."),
            (["How many months does a year have?", "How many months are in a year?", "Months in a year?", "Number of months in a year?", "Tell me how many months are in a year."], "A year has 12 months.", "Ein Jahr hat 12 Monate."),
            (["How many hours does a day have?", "How many hours are in a day?", "Hours in a day?", "Number of hours in a day?", "Tell me how many hours are in a day."], "A day has 24 hours.", "Ein Tag hat 24 Stunden.")]
NTH = Frames(["What is the {n} month?", "Which month is the {n} one?", "Name the {n} month of the year.", "The {n} month?", "Tell me the {n} month.",
       "Which is the {n} month of the year?"],
    "What is month {n}?", "What is the {n} month of the year?", "Say the {n} month.", "Do you know the {n} month?", "Which is the {n} month?",
    "What is the name of the {n} month?")
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
        known, more = ([f.replace("day", "month") for f in part if "oday" not in f] for part in (frames, frames.more))
        frames = Frames(known, *more)
    j = (i + (1 if after else -1)) % len(row)
    if state.german:
        reply = f"{'Nach' if after else 'Vor'} {row_de[i]} kommt {row_de[j]}."
    else:
        reply = f"{'After' if after else 'Before'} {row[i]} comes {row[j]}."
    return fixed("calendar", say(rng, frames, held, x=row[i]), reply)


SPELL = Frames(["Spell {w}.", "How do you spell {w}?", "Spell the word {w}.", "Spell '{w}'.", "Can you spell {w}?", "Give me the letters of {w}.",
         "Which letters are in {w}?", "Write {w} letter by letter.", "Spelling of {w}?", "spell \"{w}\"", "How is {w} spelled?",
         "Spell the word '{w}' for me.", "Please spell out {w}."],
    "Tell me how to spell {w}.", "Spell {w} for me.", "Please spell {w}.", "How do I write {w}?",
    "Can you spell out the word {w}?", "The letters of {w}?", "Spell it: {w}", "Name the letters of '{w}'.", "Could you spell {w}?")


def spelt(word):
    return letters("-".join(word)) + "."


def spelling(rng, held, state):
    w = words.word(rng, held)
    while len(w) > 6:
        w = words.word(rng, held)
    return fixed("spelling", say(rng, SPELL, held, w=w), spelt(w))


REPEAT = Frames(["Say: {x}", "Repeat: {x}", "Repeat after me: {x}", "Say '{x}'.", "Repeat this: {x}", "Echo: {x}", "Write exactly this: {x}", "Please say: {x}",
          "Repeat the following: {x}", "Say \"{x}\".", "Type this: {x}", "Copy this: {x}", "Say exactly: {x}", "Repeat what I say: {x}"],
    "Now say: {x}", "Say this: {x}", "Say again: {x}", "Please repeat: {x}", "Write: {x}", "Say the words: {x}", "Repeat the words: {x}",
    "Say after me: {x}", "Say only this: {x}", "Repeat exactly: {x}", "Repeat what I write: {x}", "Tell me again: {x}",
    "What I say is: {x}. Repeat it.", "Copy what I write: {x}")


def phrase(rng):
    pool = [lambda: rng.choice(words.WORDS), lambda: rng.choice(words.WORDS), lambda: words.made_up(rng), lambda: rng.choice(words.COLOURS),
            lambda: rng.choice(words.NAMES), lambda: str(rng.randint(0, 999)), lambda: rng.choice(["the", "a", "my", "is", "and", "in", "of"])]
    text = " ".join(rng.choice(pool)() for _ in range(rng.randint(1, 6)))
    return text[0].upper() + text[1:] if rng.random() < 0.3 else text


def repeating(rng, held, state):
    x = words.draw(rng, lambda: phrase(rng), held)
    return fixed("repeating", say(rng, REPEAT, held, wrap=False, x=x).rstrip() if not held else rng.choice(REPEAT[-2:]).format(x=x), x)


OBJECT = Frames(["Give me a JSON object with {x}.", "Make a JSON object with {x}.", "JSON with {x}", "Write JSON: {x}", "Return a JSON object with {x}.",
          "Create JSON with {x}.", "I need a JSON object with {x}.", "As JSON: {x}", "Answer in JSON: {x}", "Put this into JSON: {x}",
          "Produce a JSON object with {x}.", "Write a JSON object with {x}."],
    "Build a JSON object with {x}.", "Show JSON with {x}.", "A JSON object: {x}", "Generate a JSON object with {x}.", "Turn this into JSON: {x}",
    "Output JSON: {x}", "Please make JSON with {x}.", "Format as JSON: {x}", "Write down a JSON object: {x}")
ARRAY = Frames(["Give me a JSON list of {x}.", "Make a JSON array of {x}.", "JSON list: {x}", "Write a JSON array with {x}.", "Return a JSON list with {x}.",
         "I need a JSON array of {x}.", "Create a JSON list with {x}."],
    "Build a JSON list of {x}.", "A JSON array: {x}", "Output a JSON list of {x}.", "Make a JSON list with {x}.", "Turn {x} into a JSON list.",
    "Generate a JSON array with {x}.", "As a JSON list: {x}", "Write a JSON list of {x}.")


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


UNKNOWN = Frames(["Who is the president of {c}?", "What is the capital of {p}?", "How many people live in {c}?", "Who wrote the book about {w}?",
           "When was {n} born?", "Who won the {w} cup?", "What does {m} mean?", "What is the price of a {w}?", "How tall is {n}?", "Who invented the {w}?",
           "Where is {n} now?", "What happened in {y}?", "How far is {c} from {p}?", "What is the news in {c}?", "How old is the {w}?", "What did {n} eat yesterday?",
           "Why is the {w} so popular?", "Explain quantum physics.", "Translate {w} into Latin.", "Who is {n} {m}?", "What is the phone number of {n}?",
           "Write a program in Python.", "What is the history of {c}?", "Which films did {n} make?", "What is the population of {c}?", "When did the {w} war end?",
           "Who was king in {y}?", "How much does a {w} weigh?", "Who discovered {m}?", "What is the mayor of {c} called?", "How many {w}s are there in {c}?"],
    "Who lives in {c}?", "Who was the first king of {p}?", "How heavy is {n}?", "What did {n} say?", "Who built {c}?", "When was {c} founded?",
    "How much money does {n} have?", "Who owns the {w}?", "How many people know {n}?", "What is the mass of a {w}?",
    "When did {n} come to {c}?", "How many {w}s does {n} have?", "What is {m}?", "Who found {m}?", "What came before the {w}?",
    "What is the best {w} in {c}?", "Who won in {y}?", "Who ruled {p} in {y}?", "What do people in {c} eat?",
    "When does a {w} {m}?", "How does {n} {m}?", "Why do {w}s {m}?", "Who can {m} a {w}?", "How often does {n} {m}?", "How many {w}s {m}?", "What {m}s near {c}?",
    "How much {m} does a {w} need?", "How much time does a {w} take?", "What does a {w} cost?", "Who {m}ed {m}?",
    "Which river flows through {c}?", "How long is a {w}?", "Why did {n} leave {c}?", "What was the war of {y} about?", "How fast is a {w}?",
    "Which {w} is the biggest?")


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
