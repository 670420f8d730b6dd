"""Questions about a picture and their answers, and chats of them."""

import os
import sys

import numpy as np

import pictures
from pictures import scenes

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../demo-text"))
from corpus import chats as others  # noqa: E402
from corpus import skills  # noqa: E402

#: Content of a message that is an image.
IMAGE = object()
NUMBERS = {1: "one", 2: "two", 3: "three"}

SHOW = "I look at pictures. Send me one with plain shapes, and ask what is in it."
HELLO = "Hello! Send me a picture with plain shapes, and ask what is in it."
STRANGE = "I only know circles, squares, triangles and crosses in plain colors, and I do not see any of them here."
UNKNOWN = "I can only tell the shapes, their colors, their sizes and their places in a picture."

PICTURE = ["picture", "image", "photo", "drawing"]
WHAT = [
    "What is in this {p}?", "What is in the {p}?", "What's in this {p}?", "What do you see?", "What do you see in this {p}?", "What can you see?",
    "Describe this {p}.", "Describe the {p}.", "Please describe the {p}.", "Describe it.", "What does this {p} show?", "What does the {p} show?",
    "What is this?", "What is it?", "Tell me what is in this {p}.", "Tell me what you see.", "What is shown here?", "What is here?",
    "Can you describe this {p}?", "What is on this {p}?", "Caption this {p}.", "Write a caption.", "Describe this {p} in one sentence.",
    "Describe this {p} in detail.", "What is depicted?", "What's this?", "Describe what you see.", "Give a short description.",
    "What do you see here?", "Describe the content of this {p}.", "Write a caption for this {p}.",
]
BACKGROUND = [
    "What color is the background?", "What is the color of the background?", "Which color has the background?", "What is behind it?",
    "What color is behind it?", "And the background?", "What background is it?",
]
COLOR_OF = [
    "What color is the {s}?", "What is the color of the {s}?", "Which color has the {s}?", "Which color is the {s}?", "Tell me the color of the {s}.",
    "And the color of the {s}?",
]
COLOR = ["What color is it?", "What is its color?", "Which color is it?", "And the color?", "What color is the shape?", "Which color does it have?",
         "What color is the object?", "What colors are there?", "Which colors do you see?"]
SHAPE = ["What shape is it?", "Which shape is it?", "What shape is this?", "What shape do you see?", "Which shapes do you see?", "What shapes are there?",
         "Which shapes are in the {p}?", "What shapes are in this {p}?", "What shape is in the {p}?", "What is its shape?", "And the shape?", "Name the shape."]
SHAPE_OF = ["What shape is {c}?", "Which shape is {c}?", "What is {c}?", "What is the {c} shape?", "What is the {c} one?", "What shape is the {c} one?",
            "Which shape has the color {c}?"]
PLACE = ["Where is it?", "Where in the {p} is it?", "And where is it?", "At which place is it?", "Where is the shape?", "Where do you see it?", "Where is the object?"]
PLACE_OF = ["Where is the {s}?", "Where in the {p} is the {s}?", "Where do you see the {s}?", "At which place is the {s}?", "And where is the {s}?",
            "Tell me where the {s} is."]
COUNT_OF = ["How many {m} are there?", "How many {m} do you see?", "How many {m} are in the {p}?", "Count the {m}."]
COUNT = ["How many shapes are there?", "How many shapes do you see?", "How many objects are there?", "How many shapes are in this {p}?", "Count the shapes."]
SIZE = ["How big is it?", "How large is it?", "Is it big or small?", "What size is it?", "And the size?"]
SIZE_OF = ["How big is the {s}?", "How large is the {s}?", "Is the {s} big or small?", "What size is the {s}?"]
IS_COLOR = ["Is the {s} {c}?", "Is it a {c} {s}?", "Is the color of the {s} {c}?"]
IS_SHAPE = ["Is there a {s}?", "Is there a {s} in the {p}?", "Do you see a {s}?", "Is it a {s}?", "Can you see a {s}?"]
#: Questions about pictures that the model has no answer to.
BEYOND = [
    "Who is in this {p}?", "Who made this {p}?", "What is the weather like?", "Is there a person?", "Is there a dog?", "Do you see a cat?", "How old is it?",
    "What time is it?", "Can you read the text?", "What does the text say?", "What is the name of the artist?", "Is it beautiful?", "Do you like it?",
    "Why is it there?", "What does it mean?", "Write a poem about it.", "Make it bigger.", "Draw another one.", "Which city is this?", "Is this real?",
    "How much does it cost?", "Where was this taken?", "When was this made?", "What is the person doing?", "Translate the text.", "Is there a car?",
    "What kind of food is this?", "Tell me a story about this {p}.", "What is the mood of this {p}?", "How many people are there?", "How many dogs are there?",
    "What brand is it?", "What is the license plate?", "Which animal is this?",
]
TALK = [
    "What can you do?", "Who are you?", "What are you?", "Help!", "Can you see?", "Do you see pictures?", "What is a circle?", "Tell me a joke.",
    "What color is the circle?", "What is in this picture?", "Where is it?", "What shape is it?", "Describe the image.", "What do you see?", "Draw a circle.",
]


def frame(rng, frames, **words):
    """A question in one of its forms."""
    text = rng.choice(frames).format(p=rng.choice(PICTURE), **words)
    if rng.random() < 0.12:
        text = text.replace("color", "colour")
    if rng.random() < 0.12:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15:
        text = text.rstrip("?.")
    if rng.random() < 0.04:
        text += rng.choice([" Answer briefly.", " Please.", " Thank you!", " Answer in one sentence."])
    return text


def said(rng, word):
    """The word, or another for the same."""
    if rng.random() < 0.1:
        return rng.choice(scenes.SYNONYMS.get(word, [word]))
    return word


def listed(names):
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def capital(text):
    return text[0].upper() + text[1:]


class Seen:
    """What there is to say of a scene."""

    def __init__(self, found):
        self.objects, self.background = found.objects, found.background
        self.width, self.height = found.width, found.height
        self.shapes = [one[0] for one in found.objects]
        self.colors = [one[1] for one in found.objects]
        self.is_many = len(self.objects) > 1 and len({one[:2] for one in self.objects}) == 1
        self.is_pair = len(self.objects) == 2 and not self.is_many

    def place(self, at):
        """The name of the place of an object: in thirds of the room that it has."""
        _, _, x, y, radius = self.objects[at]
        short = min(self.width, self.height)
        part = lambda at, side: (at - side / 2) / max(side / 2 - radius - 0.05 * short, 0.08 * short)
        third = lambda share: 0 if abs(share) < 0.5 else (1 if share > 0 else -1)
        found = third(part(x, self.width)), third(part(y, self.height))
        name = next(name for name, place in scenes.PLACES.items() if place == found)
        return {"center": "in the center", "left": "on the left", "right": "on the right"}.get(name, f"at the {name}")

    def side(self, at):
        """The name of the place of one object of two."""
        (_, _, x, y, _), (_, _, other_x, other_y, _) = self.objects[at], self.objects[1 - at]
        if abs(x - other_x) > abs(y - other_y):
            return "on the left" if x < other_x else "on the right"
        return "at the top" if y < other_y else "at the bottom"

    def size(self):
        share = self.objects[0][4] / min(self.width, self.height)
        return "small" if share < 0.165 else ("big" if share > 0.295 else "")

    def named(self, at):
        return scenes.article(f"{self.colors[at]} {self.shapes[at]}")

    def order(self):
        """The objects of a pair from the left or from the top."""
        return sorted(range(2), key=lambda at: self.side(at) in ("on the right", "at the bottom"))

    def describe(self):
        on = f"on {scenes.article(self.background)} background"
        if self.is_many:
            return capital(f"{NUMBERS[len(self.objects)]} {self.colors[0]} {scenes.PLURALS[self.shapes[0]]} {on}.")
        if self.is_pair:
            first, second = self.order()
            between = "left of" if self.side(first) == "on the left" else "above"
            return capital(f"{self.named(first)} {between} {self.named(second)} {on}.")
        size = self.size()
        name = scenes.article(f"{size} {self.colors[0]} {self.shapes[0]}".strip())
        return capital(f"{name} {self.place(0)} {on}.")

    def color(self):
        if self.is_many:
            return f"The {scenes.PLURALS[self.shapes[0]]} are {self.colors[0]}."
        if self.is_pair and self.shapes[0] == self.shapes[1]:
            first, second = self.order()
            return f"The {self.shapes[0]} {self.side(first)} is {self.colors[first]} and the one {self.side(second)} is {self.colors[second]}."
        return capital(" and ".join(f"the {self.shapes[at]} is {self.colors[at]}" for at in self.in_order())) + "."

    def in_order(self):
        return self.order() if self.is_pair else [0]

    def color_of(self, shape):
        if shape not in self.shapes:
            return self.without(shape)
        if self.shapes.count(shape) > 1:
            return self.color()
        return f"The {shape} is {self.colors[self.shapes.index(shape)]}."

    def shape(self):
        if self.is_many:
            return f"They are {scenes.PLURALS[self.shapes[0]]}."
        if self.is_pair:
            if self.shapes[0] == self.shapes[1]:
                return f"They are {scenes.PLURALS[self.shapes[0]]}."
            return f"They are {listed([scenes.article(self.shapes[at]) for at in self.order()])}."
        return f"It is {scenes.article(self.shapes[0])}."

    def shape_of(self, color):
        if color not in self.colors:
            if color == self.background:
                return f"The background is {color}."
            return f"I see nothing {color}. {self.describe()}"
        if self.is_many:
            return f"The {scenes.PLURALS[self.shapes[0]]} are {color}."
        return f"The {self.shapes[self.colors.index(color)]} is {color}."

    def where(self):
        if self.is_many:
            return f"The {scenes.PLURALS[self.shapes[0]]} are {self.row()}."
        if self.is_pair:
            first, second = self.order()
            name = (lambda at: f"{self.colors[at]} {self.shapes[at]}") if self.shapes[0] == self.shapes[1] else (lambda at: self.shapes[at])
            return f"The {name(first)} is {self.side(first)} and the {name(second)} is {self.side(second)}."
        return f"The {self.shapes[0]} is {self.place(0)}."

    def where_of(self, shape):
        if shape not in self.shapes:
            return self.without(shape)
        if self.shapes.count(shape) > 1:
            return self.where()
        at = self.shapes.index(shape)
        return f"The {shape} is {self.side(at) if self.is_pair else self.place(0)}."

    def row(self):
        (_, _, x, y, _), (_, _, other_x, other_y, _) = self.objects[0], self.objects[-1]
        return "side by side" if abs(x - other_x) > abs(y - other_y) else "one above the other"

    def count_of(self, shape):
        count = self.shapes.count(shape)
        if count == 0:
            return self.without(shape)
        return f"There is one {shape}." if count == 1 else f"There are {NUMBERS[count]} {scenes.PLURALS[shape]}."

    def count(self):
        count = len(self.objects)
        return "There is one shape." if count == 1 else f"There are {NUMBERS[count]} shapes."

    def how_big(self):
        if len(self.objects) > 1:
            return "The shapes are small." if self.is_many else "Both shapes are of medium size."
        size = self.size()
        return f"The {self.shapes[0]} is {size}." if size else f"The {self.shapes[0]} is of medium size."

    def without(self, shape):
        return f"There is no {shape}. {self.describe()}"


def ask(rng, seen):
    """A question about a scene and its answer."""
    kind = rng.choices(
        ["what", "background", "color", "color of", "shape", "shape of", "where", "where of", "count", "count of", "size", "is color", "is shape", "beyond"],
        [20, 7, 7, 9, 8, 6, 8, 9, 4, 5, 4, 5, 6, 4])[0]
    absent = [shape for shape in scenes.SHAPES if shape not in seen.shapes]
    shape = rng.choice(seen.shapes if rng.random() < 0.8 else absent)
    color = rng.choice(seen.colors if rng.random() < 0.7 else list(scenes.COLORS))
    words = {"s": said(rng, shape), "c": said(rng, color), "m": scenes.PLURALS[shape]}
    if kind == "what":
        return frame(rng, WHAT), seen.describe()
    if kind == "background":
        return frame(rng, BACKGROUND), f"The background is {seen.background}."
    if kind == "color":
        return frame(rng, COLOR), seen.color()
    if kind == "color of":
        return frame(rng, COLOR_OF, **words), seen.color_of(shape)
    if kind == "shape":
        return frame(rng, SHAPE), seen.shape()
    if kind == "shape of":
        return frame(rng, SHAPE_OF, **words), seen.shape_of(color)
    if kind == "where":
        return frame(rng, PLACE), seen.where()
    if kind == "where of":
        return frame(rng, PLACE_OF, **words), seen.where_of(shape)
    if kind == "count":
        return frame(rng, COUNT), seen.count()
    if kind == "count of":
        return frame(rng, COUNT_OF, **words), seen.count_of(shape)
    if kind == "size":
        return (frame(rng, SIZE), seen.how_big()) if len(seen.objects) > 1 or rng.random() < 0.5 else (
            frame(rng, SIZE_OF, s=seen.shapes[0]), seen.how_big())
    if kind == "is color":
        answer = seen.color_of(shape)
        is_so = shape in seen.shapes and seen.shapes.count(shape) == 1 and color == seen.colors[seen.shapes.index(shape)]
        is_so = is_so or (seen.is_many and shape in seen.shapes and color == seen.colors[0])
        if shape in seen.shapes and (seen.is_many or seen.shapes.count(shape) == 1):
            answer = f"{'Yes' if is_so else 'No'}, {answer[0].lower()}{answer[1:]}"
        return frame(rng, IS_COLOR, **words), answer
    if kind == "is shape":
        return frame(rng, IS_SHAPE, **words), (f"Yes. {seen.describe()}" if shape in seen.shapes else f"No. {seen.describe()}")
    return beyond(rng), UNKNOWN


def beyond(rng):
    """A question that is not about shapes."""
    if rng.random() < 0.6:
        return frame(rng, BEYOND)
    return stray(rng)


def stray(rng):
    """What somebody may say to a model of texts."""
    messages, _ = others.chat(rng)
    said = [message["content"] for message in messages if message["role"] == "user"]
    return others.plain(rng.choice(said))[:80]


def message(rng, question, image):
    """The content of a message: an image before its question or after it."""
    if not question:
        return [IMAGE]
    return [IMAGE, question] if rng.random() < 0.6 else [question, IMAGE]


def chat(rng, noise, grid):
    """Messages of a chat, its picture and the scene in it, if there are: (role, content); content is a list of texts and `IMAGE`."""
    kind = rng.choices(["scene", "strange", "plain", "talk"], [84, 5, 4, 7])[0]
    messages = [("system", [rng.choice(others.SYSTEM)])] if rng.random() < 0.12 else []
    if kind == "talk":
        text = rng.choice(TALK) if rng.random() < 0.4 else stray(rng)
        answer = SHOW
        if rng.random() < 0.15:
            text, answer = rng.choice(["Hello", "Hi", "hello", "Hello!", "Hi!", "Good morning", "Hey", "hi there", "Good morning!"]), HELLO
        return [*messages, ("user", [text]), ("assistant", [answer])], None, None
    found = None
    if kind == "scene":
        found = pictures.scene(rng, grid)
        image, seen = pictures.drawn(noise, found), Seen(found)
        turns = [ask(rng, seen) for _ in range(rng.choices([1, 2, 3, 4], [25, 30, 25, 20])[0])]
        if rng.random() < 0.04:
            turns[0] = ("", seen.describe())
    elif kind == "strange":
        image = pictures.strange(rng, noise, grid)
        turns = [(text, UNKNOWN if text in BEYOND else STRANGE) for text in [frame(rng, rng.choice(
            [WHAT, WHAT, COLOR, SHAPE, PLACE, COUNT, SIZE]))]]
    else:
        image, name = pictures.plain(rng, noise, grid)
        frames = rng.choice([WHAT, WHAT, BACKGROUND, SHAPE, COUNT])
        turns = [(frame(rng, frames), f"The background is {name}." if frames is BACKGROUND else f"I see a plain {name} picture without a shape."
                  )]
    for at, (question, answer) in enumerate(turns):
        content = message(rng, question, image) if at == 0 else [question]
        messages += [("user", content), ("assistant", [answer])]
    return messages, image, found


if __name__ == "__main__":
    import random

    rng, noise = random.Random(3), np.random.default_rng(3)
    for _ in range(20):
        for role, content in chat(rng, noise, (6, 6))[0]:
            print(f"{role}:", " ".join("[image]" if part is IMAGE else part for part in content))
        print()
