"""Trains the autoencoder on parts of scenes. Goes on from its last checkpoint; ends after so many images.

    python train_autoencoder.py --images 120000
"""

import argparse
import math
import os
import random
import sys
import time

import numpy as np
import torch
from diffusers import AutoencoderKL

import scenes

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
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
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--images", type=int, default=120_000)
    arguments.add_argument("--rate", type=float, default=0.02)
    arguments.add_argument("--threads", type=int, default=2)
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    os.makedirs("checkpoints", exist_ok=True)
    model = network()
    print(sum(weight.numel() for weight in model.parameters()), "parameters", flush=True)
    steppers = optimizers([model], arguments.rate, 2e-3)
    average = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    seen, took = 0, 0.0
    if os.path.exists(CHECKPOINT):
        kept = torch.load(CHECKPOINT)
        model.load_state_dict(kept["model"])
        average, seen, took = kept["average"], kept["seen"], kept["took"]
        for stepper, state in zip(steppers, kept["steppers"]):
            stepper.load_state_dict(state)
    rates = [[group["initial_lr"] if "initial_lr" in group else group["lr"] for group in s.param_groups] for s in steppers]
    rates = [[arguments.rate], [2e-3]]
    rng = random.Random(100 + seen)
    began, last_kept, last_said, errors = time.time(), time.time(), seen, []
    while seen < arguments.images:
        share = seen / arguments.images
        size, count = (64, 16) if share < 0.7 else (128, 6)
        pace = min(1, (seen + 1) / 2000) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for stepper, rate in zip(steppers, rates):
            for group, rate in zip(stepper.param_groups, rate):
                group["lr"] = rate * pace
        x, weight = batch(rng, count, size)
        loss, error, _ = loss_of(model, x, weight)
        for stepper in steppers:
            stepper.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
        seen += count
        errors.append(error.item())
        with torch.no_grad():
            decay = min(0.998, (1 + seen / 16) / (10 + seen / 16))
            for name, weight in model.state_dict().items():
                average[name].lerp_(weight, 1 - decay)
        if seen - last_said >= 1600:
            said = took + time.time() - began
            print(f"{seen} images, {said:.0f} s, error {np.mean(errors[-100:]):.4f}, {(seen - last_said) / max(1e-9, time.time() - (said_at if 'said_at' in dir() else began)):.0f}/s", flush=True)
            last_said = seen
            said_at = time.time()
        if time.time() - last_kept > 60 or seen >= arguments.images:
            last_kept = time.time()
            state = {"model": model.state_dict(), "average": average, "seen": seen,
                     "took": took + time.time() - began, "steppers": [s.state_dict() for s in steppers]}
            torch.save(state, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)


if __name__ == "__main__":
    main()
