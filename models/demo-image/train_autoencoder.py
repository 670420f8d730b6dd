"""Trains the autoencoder on parts of scenes. Goes on from its last checkpoint; ends after so many images.

    python train_autoencoder.py --images 120000
"""

import math
import os
import random
import sys

import numpy as np
import torch
from diffusers import AutoencoderKL

import scenes

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, cosine, options, warm_up  # noqa: E402
from muon import optimizers  # noqa: E402

CHECKPOINT = "checkpoints/autoencoder.pt"
WIDTHS = (16, 24, 48, 64, 64)


def network():
    model = AutoencoderKL(
        in_channels=3, out_channels=3, latent_channels=8, layers_per_block=1, norm_num_groups=8,
        down_block_types=["DownEncoderBlock2D"] * len(WIDTHS), up_block_types=["UpDecoderBlock2D"] * len(WIDTHS),
        block_out_channels=WIDTHS, sample_size=256,
    )
    # Residual branches begin at nothing, so that the first steps train a plain network.
    for name, weight in model.named_parameters():
        if name.endswith(("conv2.weight", "conv2.bias", "to_out.0.weight", "to_out.0.bias")):
            torch.nn.init.zeros_(weight)
    return model.to(memory_format=torch.channels_last)


def batch(rng, count, size):
    """Parts of scenes; most of them show an edge."""
    images, weights = [], []
    for _ in range(count):
        canvas = rng.choice([max(size, 128), 192, 256, 256, 320, 512])
        found = scenes.scene(rng, max(canvas, size), max(canvas, size))
        room = max(canvas, size) - size
        _, _, x, y, radius = rng.choice(found.objects)
        turn = rng.uniform(0, 2 * math.pi)
        away = radius * rng.uniform(0.3, 1.1)
        left = min(max(int(x + away * math.cos(turn) - size / 2 + rng.uniform(-size, size) / 3), 0), room)
        top = min(max(int(y + away * math.sin(turn) - size / 2 + rng.uniform(-size, size) / 3), 0), room)
        image, covered = scenes.draw(found, left, top, size, size)
        images.append(image)
        covered = torch.from_numpy(covered)[None, None]
        near = torch.nn.functional.max_pool2d(covered, 7, 1, 3) - -torch.nn.functional.max_pool2d(-covered, 7, 1, 3)
        share = covered.mean().clamp(0.02, 0.98)
        balance = covered / share * 0.5 + (1 - covered) / (1 - share) * 0.5
        weights.append(balance.clamp(max=4) + 2 * near)
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 127.5 - 1
    return x.contiguous(memory_format=torch.channels_last), torch.cat(weights)


def loss_of(model, x, weight, rng=None):
    found = model.encode(x).latent_dist
    y = model.decode(found.sample()).sample
    gap = y - x
    error = (weight * (gap.abs() + gap * gap)).sum() / weight.sum() / 3
    return error + 1e-6 * found.kl().mean() / 16, error, y


def main():
    arguments = begin(options(images=120_000, rate=0.02, threads=2), seed=1)
    model = network()
    training = Training(CHECKPOINT, model, optimizers([model], arguments.rate, 2e-3), unit="images", decay=0.998)
    rng, errors = random.Random(100 + training.count), []
    for share in training.steps(until=arguments.images, report=lambda: f"error {np.mean(errors[-100:]):.4f}"):
        training.set_rates(warm_up(training.count, 2000) * cosine(share))
        size, count = (64, 16) if share < 0.7 else (128, 6)
        x, weight = batch(rng, count, size)
        loss, error, _ = loss_of(model, x, weight)
        errors.append(error.item())
        training.step(loss, count, 16)


if __name__ == "__main__":
    main()
