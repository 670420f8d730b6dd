"""Pictures with what is in them: scenes of the demo image model as a network draws them, and others that show none of its shapes."""

import os
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../demo-image"))
import scenes  # noqa: E402

#: Sides of a picture in tokens, with the pixels of a token. Most pictures are square.
BLOCK = 16
GRIDS = [(6, 6), (4, 8), (8, 4), (5, 7), (7, 5)]


def scene(rng, grid):
    """A scene on a canvas of so many rows and columns."""
    rows, columns = grid
    found = scenes.scene(rng, columns * BLOCK, rows * BLOCK)
    # Where one object stands is named by its place, so it stands at any.
    if len(found.objects) == 1 and rng.random() < 0.6:
        shape, color, _, _, radius = found.objects[0]
        short = min(found.width, found.height)
        radius = min(radius, rng.uniform(0.1, 0.26) * short)
        x, y = scenes.placed(rng, rng.choice(list(scenes.PLACES)), radius, found.width, found.height)
        found.objects = [(shape, color, x, y, radius)]
    return found


def soften(noise, levels):
    """As a network draws them: soft edges, colors near those asked for, spots."""
    if noise.random() < 0.6:
        levels = levels + noise.normal(0, noise.choice([3, 6, 12]), 3)
        share = noise.uniform(0.5, 1.5)
        levels = (levels + share * (np.roll(levels, 1, 0) + np.roll(levels, 1, 1) + np.roll(levels, -1, 0) + np.roll(levels, -1, 1)) / 4)
        levels = levels / (1 + share)
    if noise.random() < 0.5:
        levels = levels + noise.normal(0, noise.choice([2, 5, 10]), levels.shape)
    if noise.random() < 0.4:
        levels = levels + smooth(noise, levels.shape, 4) * noise.choice([6, 12, 20])
    return levels


def smooth(noise, shape, cells):
    """Noise between -1 and 1 that changes slowly."""
    small = noise.uniform(-1, 1, (cells, cells, shape[2]))
    at = lambda size: np.linspace(0, cells - 1, size)
    for axis, size in ((0, shape[0]), (1, shape[1])):
        places = at(size)
        first = np.floor(places).astype(int).clip(0, cells - 2)
        share = (places - first).reshape([-1 if axis == other else 1 for other in range(3)])
        small = np.take(small, first, axis) * (1 - share) + np.take(small, first + 1, axis) * share
    return small


def drawn(noise, found):
    return soften(noise, scenes.draw(found)[0]).clip(0, 255).round().astype(np.uint8)


def seen_by(found, grid):
    """Of each token the shape and the color that it sees of an object, by their numbers, or -1; and of each patch which of its pixels
    are covered."""
    y, x = np.mgrid[: grid[0], : grid[1]] * BLOCK + BLOCK / 2
    labels = np.full((2, *grid), -1)
    covered = np.zeros((grid[0] * BLOCK, grid[1] * BLOCK), np.float32)
    if found:
        covered = scenes.draw(found)[1]
    for shape, color, middle_x, middle_y, radius in found.objects if found else ():
        is_near = scenes.distance(shape, x - middle_x, y - middle_y, radius) < BLOCK / 2
        labels[0][is_near] = scenes.SHAPES.index(shape)
        labels[1][is_near] = list(scenes.COLORS).index(color)
    half = BLOCK // 2
    parts = covered.reshape(grid[0], 2, half, grid[1], 2, half).transpose(0, 3, 1, 4, 2, 5)
    return labels.reshape(2, -1), parts.reshape(-1, half * half)


def strange(rng, noise, grid):
    """A picture of something else: slopes, noise, stripes, clouds, or many pieces."""
    rows, columns = grid[0] * BLOCK, grid[1] * BLOCK
    kind = rng.choice(["slopes", "noise", "stripes", "clouds", "pieces", "tiles"])
    y, x = np.mgrid[:rows, :columns].astype(np.float32)
    color = lambda: noise.uniform(0, 255, 3)
    if kind == "slopes":
        share = (x / columns)[..., None] if rng.random() < 0.5 else (y / rows)[..., None]
        other = (y / rows)[..., None]
        levels = color() * share + color() * (1 - share) * other + color() * (1 - other)
    elif kind == "noise":
        levels = noise.uniform(0, 255, (rows, columns, 3))
    elif kind == "stripes":
        angle, width = rng.uniform(0, np.pi), rng.uniform(4, 14)
        is_on = np.sin((x * np.cos(angle) + y * np.sin(angle)) * np.pi / width) > 0
        levels = np.where(is_on[..., None], color(), color())
    elif kind == "clouds":
        levels = 128 + sum(smooth(noise, (rows, columns, 3), cells) * height for cells, height in ((3, 110), (7, 60), (15, 40)))
    elif kind == "tiles":
        side = rng.choice([6, 8, 12, 16])
        is_on = (x // side + y // side) % 2 > 0
        levels = np.where(is_on[..., None], color(), color())
    else:
        levels = np.zeros((rows, columns, 3)) + color()
        for _ in range(rng.randint(7, 16)):
            top, left = rng.randrange(rows), rng.randrange(columns)
            levels[top : top + rng.randint(6, 40), left : left + rng.randint(6, 40)] = color()
    return levels.clip(0, 255).round().astype(np.uint8)


def plain(rng, noise, grid):
    """A background alone, and its name."""
    name = rng.choice(list(scenes.COLORS))
    levels = np.zeros((grid[0] * BLOCK, grid[1] * BLOCK, 3), np.float32) + np.float32(scenes.COLORS[name])
    return soften(noise, levels).clip(0, 255).round().astype(np.uint8), name
