"""Clips that the demo video model is taught with: one plain shape on a plain background that moves, grows, shrinks or
changes its color, drawn by distance fields, and the sentences that describe them.

A clip is relative to its canvas, so that any part of it can be drawn alone.
"""

import random
from dataclasses import dataclass

import numpy as np

FRAMES = 17
SIDE = 64
COLORS = {
    "red": (220, 30, 30),
    "green": (30, 170, 50),
    "blue": (40, 70, 220),
    "yellow": (240, 220, 40),
    "white": (245, 245, 245),
    "black": (15, 15, 15),
}
SHAPES = ["circle", "square", "triangle"]
MOVES = {"right": (1, 0), "left": (-1, 0), "up": (0, -1), "down": (0, 1)}
CHANGES = [*MOVES, "grows", "shrinks", "turns"]
#: Radius in parts of the side.
SIZES = {"small": (0.12, 0.14), "": (0.18, 0.21), "big": (0.25, 0.28)}
#: Radius at the smaller and at the larger end of a clip that grows or shrinks.
ENDS = ((0.11, 0.13), (0.32, 0.36))
PHRASES = {
    "right": ["moves to the right", "moves right"],
    "left": ["moves to the left", "moves left"],
    "up": ["moves up"],
    "down": ["moves down"],
    "grows": ["grows", "gets bigger"],
    "shrinks": ["shrinks", "gets smaller"],
    "turns": ["turns", "becomes"],
    "stays": ["stays", ""],
}
#: Words that the tokenizer knows as one token.
WORDS = sorted(set(" ".join([*COLORS, *SHAPES, *(text for texts in PHRASES.values() for text in texts),
                             "small big a an on background the and in it video of with still moving growing"]).split()))


@dataclass
class Clip:
    background: str
    color: str
    last_color: str
    shape: str
    change: str
    caption: str
    #: Middle, radius and color of the object for each frame, in pixels and numbers from 0 to 255.
    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    shade: np.ndarray


def clip(rng, change=None, background=None, color=None, shape=None, plain=False):
    """A clip; arguments settle a part of it, `plain` settles the wording."""
    change = change or rng.choices([*CHANGES, "stays"], [1, 1, 1, 1, 1, 1, 1.4, 0.4])[0]
    names = [name for name in COLORS if name not in (background, color)]
    rng.shuffle(names)
    background = background or names.pop()
    color = color or names.pop()
    last_color = names.pop() if change == "turns" else color
    shape = shape or rng.choice(SHAPES)
    along = np.linspace(0, 1, FRAMES, dtype=np.float32)
    size = "" if plain else rng.choices(["", "small", "big"], [0.6, 0.2, 0.2])[0]
    x, y = (0.5 + rng.uniform(-0.03, 0.03) + np.zeros_like(along) for _ in range(2))
    if change in ("grows", "shrinks"):
        first, last = (rng.uniform(*ends) for ends in ENDS)
        if change == "shrinks":
            first, last = last, first
        fitting = "small" if change == "grows" else "big"
        size = fitting if size == fitting else ""
        radius = first + (last - first) * along
    else:
        radius = rng.uniform(*SIZES[size]) + np.zeros_like(along)
    if change in MOVES:
        reach = 0.5 - radius[0] - rng.uniform(0.03, 0.06)
        dx, dy = MOVES[change]
        x, y = x + dx * reach * (2 * along - 1), y + dy * reach * (2 * along - 1)
    shade = np.repeat(np.float32([COLORS[color]]), FRAMES, 0)
    turned = np.clip(along * 2 - 0.5, 0, 1)[:, None]
    shade = shade + (np.float32([COLORS[last_color]]) - shade) * turned
    phrase = PHRASES[change][0] if plain else rng.choice(PHRASES[change])
    words = ["a", size, color, shape, phrase, last_color if change == "turns" else ""]
    tail = f"on a {background} background" if plain or rng.random() < 0.6 else f"on {background}"
    caption = " ".join(word for word in [*words, tail] if word)
    return Clip(background, color, last_color, shape, change, caption, x * SIDE, y * SIDE, radius * SIDE, shade)


def is_held_out(found):
    """An eighth of the combinations, which training never sees."""
    colors, changes = list(COLORS), list(PHRASES)
    found = [colors.index(found.background), colors.index(found.color), SHAPES.index(found.shape), changes.index(found.change)]
    return sum(value * factor for value, factor in zip(found, (1, 3, 5, 2))) % 8 == 0


def distance(shape, dx, dy, radius):
    """How far a place is outside of the edge of a shape, in pixels; negative inside."""
    if shape == "circle":
        return np.hypot(dx, dy) - radius
    if shape == "square":
        return np.maximum(np.abs(dx), np.abs(dy)) - 0.88 * radius
    # From the tip at the top to a base of twice the radius.
    slope = 1 / np.hypot(1, 1.85)
    sides = (np.abs(dx) * 1.85 - (dy + radius)) * slope
    return np.maximum(sides, dy - 0.85 * radius)


def draw(found, left=0, top=0, size=SIDE):
    """Part of a clip as numbers from 0 to 255 (frames, height, width, 3), and where the object is."""
    x = (np.arange(size, dtype=np.float32) + left + 0.5)[None, None, :]
    y = (np.arange(size, dtype=np.float32) + top + 0.5)[None, :, None]
    at = lambda values: values.astype(np.float32)[:, None, None]
    covered = np.clip(0.5 - distance(found.shape, x - at(found.x), y - at(found.y), at(found.radius)), 0, 1)
    ground = np.float32(COLORS[found.background])
    image = ground + covered[..., None] * (found.shade[:, None, None, :] - ground)
    return image, covered


if __name__ == "__main__":
    rng = random.Random(3)
    for _ in range(24):
        print(clip(rng).caption)
