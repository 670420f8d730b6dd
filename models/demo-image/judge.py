"""Looks at an image of one object: the nearest color of the border and of the object, and the shape that overlaps most."""

import numpy as np

import scenes

NAMES = list(scenes.COLORS)
PALETTE = np.float32([scenes.COLORS[name] for name in NAMES])
GRID = 32


def template(shape):
    found = scenes.Scene(256, 256, "white", [(shape, "black", 128, 128, 80)])
    return fitted(scenes.draw(found)[1] > 0.5)


def fitted(mask):
    """The part of a mask that is set, on a small grid."""
    rows, columns = np.where(mask.any(1))[0], np.where(mask.any(0))[0]
    mask = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    at = lambda size: ((np.arange(GRID) + 0.5) * size / GRID).astype(int)
    return mask[at(mask.shape[0])][:, at(mask.shape[1])]


TEMPLATES = {shape: template(shape) for shape in scenes.SHAPES}


def judge(image):
    """(background, color, shape) of an image of numbers from 0 to 255."""
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
        return NAMES[ground], None, None
    mask = fitted(mask)
    shares = {shape: (mask & form).sum() / (mask | form).sum() for shape, form in TEMPLATES.items()}
    return NAMES[ground], NAMES[color], max(shares, key=shares.get)
