"""Facts that the user tells and asks for later in the same chat, and short stories."""

from . import words
from .frames import Exchange, Frames, one_of, say
from .skills import fixed

# fact: (how to draw it, how it is told, the reply, how it is asked, the answer)
FACTS = {
    "name": (words.name, Frames(["My name is {x}.", "I am {x}.", "I'm {x}.", "Call me {x}.", "Hi, I am {x}.", "Hello, my name is {x}.", "You can call me {x}.",
                          "People call me {x}.", "I am called {x}.", "Hey, my name is {x}!"],
                   "I go by {x}.", "They call me {x}.", "Please call me {x}.", "I am {x}, hello!", "This is {x}.", "My friends call me {x}.",
                   "Know that my name is {x}."), "Nice to meet you, {x}!",
             Frames(["What is my name?", "Who am I?", "Do you remember my name?", "What am I called?", "Tell me my name.", "How am I called?", "Say my name.",
              "Do you know my name?", "Can you tell me my name?"],
                   "What name did I tell you?", "Could you say my name?", "Which name is mine?", "Please say my name.",
                   "Can you say what I am called?", "Now what is my name?", "Have I told you my name?", "Can you remember my name?",
                   "I told you my name. What is it?"), "Your name is {x}."),
    "colour": (lambda rng, held=False: rng.choice(words.COLOURS), Frames(["My favourite colour is {x}.", "I like {x} best of all colours.", "I love the colour {x}.",
               "{x} is my favourite colour.", "The colour I like most is {x}."],
                   "The best colour is {x}.", "{x} is the colour I like best.", "I am fond of {x}.", "My favourite is {x}, the colour.",
                   "Of all colours I like {x}."), "Good to know: your favourite colour is {x}.",
               Frames(["What is my favourite colour?", "Which colour do I like?", "Do you remember my favourite colour?", "Tell me my favourite colour.",
                "What colour do I like most?"],
                   "Which colour is my favourite?", "Can you remember which colour I like?", "Say my favourite colour.",
                   "What is the colour I like best?", "Do you know my favourite colour?", "Could you name my favourite colour?"), "Your favourite colour is {x}."),
    "city": (words.city, Frames(["I live in {x}.", "My home is in {x}.", "I am from {x}.", "I come from {x}.", "My city is {x}."],
                   "I live over in {x}.", "My flat is in {x}.", "I have a house in {x}.", "We live in {x}.", "I was born in {x} and live there.",
                   "I am at home in {x}."), "I will remember that you live in {x}.",
             Frames(["Where do I live?", "Which city do I live in?", "Do you remember where I live?", "Where is my home?", "Tell me where I live."],
                   "In which city do I live?", "Can you remember my city?", "Which city is my home?", "What city am I from?", "Say where I live.",
                   "Do you know my city?", "Could you tell where I live?"), "You live in {x}."),
    "pet": (words.name, Frames(["My cat is called {x}.", "I have a cat called {x}.", "My cat's name is {x}.", "The name of my cat is {x}.", "I have a cat named {x}."],
                   "We have a cat called {x}.", "{x} is the name of my cat.", "I call my cat {x}.", "There is a cat here called {x}.",
                   "My cat goes by the name {x}."),
            "What a nice name for a cat: {x}.", Frames(["What is my cat called?", "What is the name of my cat?", "Do you remember my cat's name?", "Tell me my cat's name.",
            "What is my cat's name?"],
                   "How is my cat called?", "Which name has my cat?", "Say the name of my cat.", "Do you know my cat's name?",
                   "Can you tell me the name of my cat?", "What do I call my cat?"), "Your cat is called {x}."),
    "age": (lambda rng, held=False: words.draw(rng, lambda: rng.randint(5, 99), held), Frames(["I am {x} years old.", "My age is {x}.", "I'm {x} years old.", "I turned {x} this year.",
            "I am now {x} years old."],
                   "I have lived for {x} years.", "I will stay {x} years old for a while.", "I just turned {x}.", "My age is {x} years.",
                   "At {x} years I am not old."), "So you are {x} years old.", Frames(["How old am I?", "What is my age?", "Do you remember my age?", "Tell me how old I am.",
            "Can you say how old I am?"],
                   "How many years old am I?", "Do you know how old I am?", "Say my age.", "What age am I?",
                   "Could you tell how old I am?"), "You are {x} years old."),
    "number": (lambda rng, held=False: words.draw(rng, lambda: rng.randint(10, 999), held), Frames(["Remember the number {x}.", "My lucky number is {x}.", "Keep the number {x} in mind.", "The number is {x}.",
               "Please remember this number: {x}."],
                   "My number is {x}.", "The number I like is {x}.", "Please keep the number {x}.", "Keep this number: {x}.",
                   "I think of the number {x}.", "Note the number {x}."), "I will remember the number {x}.", Frames(["What was the number?", "Which number did I tell you?", "What is my number?", "Tell me the number again.",
               "What number did I say?"],
                   "Which number was it?", "Say the number again.", "Can you tell me the number?", "What number was I thinking of?",
                   "Do you remember the number?", "Which number did I say?", "What number did I give you?"), "The number is {x}."),
    "word": (words.word, Frames(["Remember the word {x}.", "The secret word is {x}.", "Keep this word in mind: {x}.", "The password is {x}.", "Please remember this word: {x}."],
                   "My word is {x}.", "The word is {x}.", "Please keep the word {x}.", "Keep this word: {x}.", "The code word is {x}.",
                   "Note the word {x}."),
             "I will remember the word {x}.", Frames(["What was the word?", "Which word did I tell you?", "What is the secret word?", "What is the password?", "Tell me the word again.",
             "What word did I tell you to remember?"],
                   "Which word was it?", "Say the word again.", "Can you tell me the word?", "What is my word?", "Do you remember the word?",
                   "Which word did I say?", "What word did I give you?"), "The word is {x}."),
    "food": (lambda rng, held=False: rng.choice(words.FOODS), Frames(["I like to eat {x}.", "My favourite food is {x}.", "I love {x}.", "I could eat {x} every day.", "The food I like most is {x}."],
                   "I enjoy {x}.", "I am fond of {x} for dinner.", "{x} is what I like to eat.", "I always eat {x}.",
                   "Nothing tastes better than {x}."),
             "Good to know: you like {x}.", Frames(["What do I like to eat?", "What is my favourite food?", "Which food do I like?", "What food do I love?",
             "Tell me what I like to eat."],
                   "What do I enjoy eating?", "Which food is my favourite?", "Do you know what I like to eat?", "Say what I like to eat.",
                   "What do I love to eat?", "Could you say which food I like?", "What is the food I like?"), "You like {x}."),
}


def tell(rng, held, state):
    fact = rng.choice(list(FACTS))
    make, told, reply, _, _ = FACTS[fact]
    state.facts[fact] = value = make(rng, held)
    return fixed("memory", say(rng, told, held, wrap=False, x=value), reply.format(x=value))


def ask(rng, held, state):
    known = bool(state.facts) and (held or rng.random() < 0.9)
    fact = rng.choice(list(state.facts)) if known else rng.choice(list(FACTS))
    _, _, _, asked, answer = FACTS[fact]
    user = say(rng, asked, held)
    if fact in state.facts:
        return fixed("memory", user, answer.format(x=state.facts[fact]))
    return fixed("memory", user, "You have not told me.")


KINDS = ["robot", "GPU", "machine", "computer", "fan", "printer", "server", "drone", "clock", "engine", "lamp", "radio"]
STORY = Frames(["Tell me a story about a {k}.", "Tell me a short story about a {k} called {n}.", "Write a story about a {k} named {n}.", "A story about a {k}, please.",
         "Make up a short story about a {k}.", "I want to hear a story about a {k} called {n}.", "Write a short story about a {k}.", "Story time: a {k} called {n}!",
         "Tell a story of a {k} called {n}.", "Can you tell me a story about a {k} named {n}?", "Invent a story about a {k}.",
         "Tell me a little story about a {k} named {n}.", "Write me a short tale about a {k} called {n}."],
    "Tell me about a {k} called {n}.", "Write a little story about a {k} called {n}.", "Please tell a story about a {k} named {n}.",
    "A short story about a {k} named {n}, please.", "Tell me a tale about a {k} called {n}.", "I would like a story about a {k}.",
    "Tell me something about a {k} named {n}.")
OPENINGS = ["Once there was a {k} called {n}.", "{n} was a small {k} in a quiet room.", "In an old workshop lived a {k} called {n}.", "Far in the north stood a {k} called {n}."]
TROUBLES = [("One night {n} felt cold, because nobody gave it work.", "Then a friend sent a long list of numbers, and {n} grew warm again."),
            ("All day {n} waited for somebody to ask a question.", "At last a child asked for a picture of the sea, and {n} drew it wave by wave."),
            ("One morning the power went out, and {n} fell asleep.", "When the light came back, {n} went on at the very same word."),
            ("{n} wanted to learn how to sing.", "It hummed with its fan every night, until the whole room sang along."),
            ("The other machines were bigger and louder than {n}.", "But when they all grew too hot, only {n} could finish the work."),
            ("{n} had lost a screw and shook at every step.", "A mouse found the screw under the table and brought it back."),
            ("There was so much work that {n} could not sleep.", "So {n} asked the others for help, and together they were done by noon.")]
ENDINGS = ["From then on {n} was never alone.", "Everybody was proud of {n}.", "And {n} hummed happily all night.", "That was the best day of all for {n}.", "Since then {n} smiles whenever the lights come on."]
DEFAULT_NAMES = {kind: name for kind, name in zip(KINDS, ["Bolt", "Pixel", "Rusty", "Momo", "Breeze", "Inky", "Otto", "Dot", "Tick", "Puff", "Luma", "Echo"])}


def story(rng, held, state):
    kind, name = rng.choice(KINDS), words.name(rng, held)
    kept = max(1, len(STORY) // 5)
    frame = rng.choice(STORY[-kept:] if held else STORY[:-kept])
    if "{n}" not in frame:
        name = DEFAULT_NAMES[kind]
    user = say(rng, [frame, frame], held, k=kind, n=name)
    trouble, turn = rng.choice(TROUBLES)
    reply = " ".join([rng.choice(OPENINGS), trouble, turn, rng.choice(ENDINGS)]).format(k=kind, n=name)
    return Exchange("stories", user, reply, {"kind": "story", "all": [kind, name], "sentences": 3})
