"""Looks at the first and the last frame of a clip of one object: the nearest colors of the border and of the object, the
shape that overlaps most, and the change from place, size and color."""

from dataclasses import dataclass

import numpy as np

import scenes

NAMES = list(scenes.COLORS)
PALETTE = np.float32([scenes.COLORS[name] for name in NAMES])
GRID = 32


@dataclass
class Look:
    background: str
    color: str = ""
    shape: str = ""
    x: float = 0.0
    y: float = 0.0
    area: int = 0


def template(shape):
    along = np.linspace(128, 128, 1)
    found = scenes.Clip("white", "black", "black", shape, "stays", "", along, along, along * 0.6, np.zeros((1, 3)))
    return fitted(scenes.draw(found, size=256)[1][0] > 0.5)


def fitted(mask):
    """The part of a mask that is set, on a small grid."""
    rows, columns = np.where(mask.any(1))[0], np.where(mask.any(0))[0]
    mask = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    at = lambda size: ((np.arange(GRID) + 0.5) * size / GRID).astype(int)
    return mask[at(mask.shape[0])][:, at(mask.shape[1])]


TEMPLATES = {shape: template(shape) for shape in scenes.SHAPES}


def look(image):
    """One frame of numbers from 0 to 255."""
    gaps = ((image[:, :, None, :] - PALETTE) ** 2).sum(-1)
    nearest = gaps.argmin(-1)
    border = np.concatenate([nearest[0], nearest[-1], nearest[:, 0], nearest[:, -1]])
    ground = np.bincount(border, minlength=len(NAMES)).argmax()
    away = np.abs(image - PALETTE[ground]).sum(-1) > 120
    counts = np.bincount(nearest[away], minlength=len(NAMES))
    counts[ground] = 0
    color = counts.argmax()
    mask = gaps[..., color] < gaps[..., ground]
    if mask.sum() < 40:
        return Look(NAMES[ground])
    form = fitted(mask)
    shares = {shape: (form & other).sum() / (form | other).sum() for shape, other in TEMPLATES.items()}
    y, x = np.nonzero(mask)
    return Look(NAMES[ground], NAMES[color], max(shares, key=shares.get), x.mean(), y.mean(), int(mask.sum()))


def judge(clip):
    """(background, first color, last color, shape, change) of a clip (frames, height, width, 3)."""
    first, last = look(clip[0]), look(clip[-1])
    same = lambda one, other: one if one == other else f"{one} then {other}"
    if not first.area or not last.area:
        return same(first.background, last.background), first.color, last.color, "", ""
    side = clip.shape[1]
    dx, dy, ratio = last.x - first.x, last.y - first.y, last.area / first.area
    if max(abs(dx), abs(dy)) > 0.2 * side:
        change = ("right" if dx > 0 else "left") if abs(dx) > abs(dy) else ("down" if dy > 0 else "up")
    elif not 0.55 < ratio < 1.8:
        change = "grows" if ratio > 1 else "shrinks"
    else:
        change = "turns" if first.color != last.color else "stays"
    return (same(first.background, last.background), first.color, last.color, same(first.shape, last.shape), change)


if __name__ == "__main__":
    import random

    rng = random.Random(1)
    for _ in range(300):
        found = scenes.clip(rng)
        wanted = (found.background, found.color, found.last_color, found.shape, found.change)
        if judge(scenes.draw(found)[0]) != wanted:
            print(wanted, judge(scenes.draw(found)[0]))
