"""Scenes that the demo image model is taught with: plain shapes on a plain background, drawn by distance fields, and
the sentences that describe them.

A scene is relative to its canvas, so that it can be drawn at any size and any part of it alone.
"""

import random
from dataclasses import dataclass, field

import numpy as np

COLORS = {
    "red": (220, 30, 30),
    "green": (30, 170, 50),
    "blue": (40, 70, 220),
    "yellow": (240, 220, 40),
    "purple": (140, 40, 170),
    "orange": (245, 140, 20),
    "white": (245, 245, 245),
    "black": (15, 15, 15),
}
SHAPES = ["circle", "square", "triangle", "cross"]
PLURALS = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses"}
#: Other words for the same, used now and then.
SYNONYMS = {
    "circle": ["disc", "ball", "dot"],
    "square": ["box"],
    "cross": ["plus"],
    "big": ["large", "huge"],
    "small": ["little", "tiny"],
    "background": ["backdrop"],
    "purple": ["violet"],
    "center": ["middle"],
}
#: Radius in parts of the shorter side.
SIZES = {"small": (0.10, 0.14), "": (0.19, 0.26), "big": (0.33, 0.42)}
PLACES = {
    "left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1), "center": (0, 0),
    "top left": (-1, -1), "top right": (1, -1), "bottom left": (-1, 1), "bottom right": (1, 1),
}
COUNTS = {2: "two", 3: "three"}
OPENINGS = ["a picture of ", "an image of ", "a photo of ", "a drawing of ", "draw ", "please draw ", "show me "]
#: Words that the tokenizer knows as one token.
WORDS = sorted(
    set(" ".join(
        [*COLORS, *SHAPES, *PLURALS.values(), *PLACES, *COUNTS.values(), "small big", *OPENINGS,
         *(word for words in SYNONYMS.values() for word in words),
         "balls discs dots boxes a an and at the in of on is with above below next to beside left of right of"]
    ).split())
)


@dataclass
class Scene:
    width: int
    height: int
    background: str
    #: (shape, color, x, y, radius) in pixels of the canvas.
    objects: list = field(default_factory=list)
    caption: str = ""


def article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def say(rng, word):
    others = SYNONYMS.get(word)
    return rng.choice(others) if others and rng.random() < 0.15 else word


def named(rng, size, color, shape):
    words = [say(rng, size) if size else "", say(rng, color), say(rng, shape)]
    return " ".join(word for word in words if word)


def placed(rng, place, radius, width, height):
    """The middle of an object that stands at a place, well inside of the canvas."""
    short = min(width, height)
    dx, dy = PLACES[place]
    reach_x, reach_y = width / 2 - radius - 0.05 * short, height / 2 - radius - 0.05 * short
    jitter = lambda away, reach: 0 if away else rng.uniform(-0.04, 0.04) * short
    return (width / 2 + dx * max(reach_x, 0) + jitter(dx, reach_x),
            height / 2 + dy * max(reach_y, 0) + jitter(dy, reach_y))


def scene(rng, width, height):
    short = min(width, height)
    color, background = rng.sample(list(COLORS), 2)
    shape = rng.choice(SHAPES)
    kind = rng.choices(["one", "many", "two"], [0.7, 0.12, 0.18])[0]
    found = Scene(width, height, background)
    if kind == "one":
        size = rng.choices(["", "small", "big"], [0.42, 0.16, 0.42])[0]
        radius = rng.uniform(*SIZES[size]) * short
        place = rng.choice(list(PLACES)) if size != "big" and rng.random() < 0.45 else None
        x, y = placed(rng, place or "center", radius, width, height)
        found.objects = [(shape, color, x, y, radius)]
        subject = article(named(rng, size, color, shape))
        if place == "center":
            subject += f" {rng.choice(['in', 'at'])} the {say(rng, 'center')}"
        elif place:
            subject += f" {rng.choice(['at', 'on', 'in'])} the {place}"
    elif kind == "many":
        count = rng.choice(list(COUNTS))
        radius = rng.uniform(*((0.11, 0.15) if count == 2 else (0.09, 0.12))) * short
        is_row = width >= height
        places = np.linspace(0.22, 0.78, count) if count > 2 else (0.3, 0.7)
        for at in places:
            off = 0.5 + rng.uniform(-0.08, 0.08)
            x, y = (at * width, off * height) if is_row else (off * width, at * height)
            found.objects.append((shape, color, x, y, radius))
        subject = f"{COUNTS[count]} {say(rng, color)} {PLURALS[shape]}"
    else:
        other = rng.choice([name for name in COLORS if name not in (color, background)])
        other_shape = rng.choice(SHAPES)
        radii = [rng.uniform(0.15, 0.2) * short for _ in range(2)]
        is_stacked = rng.random() < (0.25 if width >= height else 0.5)
        ends = [(0.27 + rng.uniform(-0.02, 0.02)), (0.73 + rng.uniform(-0.02, 0.02))]
        across = [0.5 + rng.uniform(-0.05, 0.05) for _ in range(2)]
        if is_stacked:
            middles = [(across[at] * width, ends[at] * height) for at in range(2)]
        else:
            middles = [(ends[at] * width, across[at] * height) for at in range(2)]
        first = (shape, color, *middles[0], radii[0])
        second = (other_shape, other, *middles[1], radii[1])
        found.objects = [first, second]
        names = [article(named(rng, "", color, shape)), article(named(rng, "", other, other_shape))]
        if is_stacked:
            subject = (f"{names[0]} above {names[1]}" if rng.random() < 0.5
                       else f"{names[1]} below {names[0]}")
        else:
            subject = rng.choices(
                [f"{names[0]} and {names[1]}", f"{names[0]} next to {names[1]}",
                 f"{names[0]} left of {names[1]}", f"{names[1]} right of {names[0]}"],
                [0.6, 0.15, 0.15, 0.1])[0]
    found.caption = sentence(rng, subject, background, color)
    return found


def sentence(rng, subject, background, color):
    ground = say(rng, background)
    tails = [f" on {article(ground)} {say(rng, 'background')}", f", {ground} background", f" on {ground}"]
    text = subject + rng.choices(tails, [0.7, 0.15, 0.15])[0]
    if rng.random() < 0.12:
        text = rng.choice(OPENINGS) + text
    if rng.random() < 0.05:
        letters = "abcdefghijklmnopqrstuvwxyz"
        word = "".join(rng.choice(letters) for _ in range(rng.randint(3, 8)))
        text += f", {word}"
    return text


def distance(shape, dx, dy, radius):
    """How far a place is outside of the edge of a shape, in pixels; negative inside."""
    if shape == "circle":
        return np.hypot(dx, dy) - radius
    if shape == "square":
        side = 0.88 * radius
        return np.maximum(np.abs(dx), np.abs(dy)) - side
    if shape == "triangle":
        # From the tip at the top to a base of twice the radius.
        slope = 1 / np.hypot(1, 1.85)
        sides = (np.abs(dx) * 1.85 - (dy + radius)) * slope
        return np.maximum(sides, dy - 0.85 * radius)
    arm = 0.34 * radius
    upright = np.maximum(np.abs(dx) - arm, np.abs(dy) - radius)
    level = np.maximum(np.abs(dx) - radius, np.abs(dy) - arm)
    return np.minimum(upright, level)


def draw(found, left=0, top=0, width=None, height=None):
    """Part of a scene as numbers from 0 to 255, and where objects and their edges are."""
    width, height = width or found.width, height or found.height
    x = (np.arange(width, dtype=np.float32) + left + 0.5)[None, :]
    y = (np.arange(height, dtype=np.float32) + top + 0.5)[:, None]
    image = np.empty((height, width, 3), np.float32)
    image[:] = COLORS[found.background]
    covered = np.zeros((height, width), np.float32)
    for shape, color, middle_x, middle_y, radius in found.objects:
        share = np.clip(0.5 - distance(shape, x - middle_x, y - middle_y, radius), 0, 1)
        image += share[..., None] * (np.float32(COLORS[color]) - image)
        covered = np.maximum(covered, share)
    return image, covered


if __name__ == "__main__":
    rng = random.Random(3)
    for _ in range(24):
        print(scene(rng, 256, 256).caption)
