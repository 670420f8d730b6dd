"""Trains the autoencoder on parts of clips. Goes on from its last checkpoint; ends after so many minutes.

    python train_autoencoder.py --minutes 45
    python train_autoencoder.py --minutes 30 --decoder    the decoder alone, once the network is trained on the latents
"""

import math
import os
import random
import sys

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders import autoencoder_kl_wan

import scenes
from threads import Threads

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, cosine, options, warm_up  # noqa: E402
from muon import optimizers  # noqa: E402

CHECKPOINT = "checkpoints/autoencoder.pt"
DECODER = "checkpoints/decoder.pt"
CHANNELS = 16
BASE = 8
BATCH = 6


def network():
    model = AutoencoderKLWan(base_dim=BASE, z_dim=CHANNELS, dim_mult=[1, 2, 4, 4], num_res_blocks=1,
                             temperal_downsample=[False, True, True], latents_mean=[0.0] * CHANNELS,
                             latents_std=[1.0] * CHANNELS)
    # Residual branches begin at nothing, so that the first steps train a plain network.
    for name, weight in model.named_parameters():
        if name.endswith(("conv2.weight", "conv2.bias", "proj.weight", "proj.bias")):
            torch.nn.init.zeros_(weight)
    pass_colors(model)
    # Latents begin with little noise, else the first hundreds of steps learn to shrink it.
    model.quant_conv.weight.data[CHANNELS:] = 0
    model.quant_conv.bias.data[CHANNELS:] = -5
    return channels_last(model)


@torch.no_grad()
def pass_colors(model):
    """Begins with a plain transform, which training then sharpens: means over blocks and differences over time are
    encoded, and joined and interpolated by the decoder. Six channels hold each color and its negative, which together
    pass the activation unchanged, and two are constant, so that the norms keep brightness. The next eight hold
    differences between frames, and eight more the finer ones."""
    encoder, decoder = model.encoder, model.decoder
    signs = torch.zeros(8, 3)
    for color in range(3):
        signs[2 * color, color], signs[2 * color + 1, color] = 1, -1

    def settle(layer, first, rows, taps, left=0):
        """Some rows of a convolution: a matrix at some places of the kernel, nothing elsewhere."""
        count, width = rows.shape
        layer.weight[first : first + count] = 0
        add(layer, first, rows, taps, left)
        layer.bias[first : first + count] = 0

    def add(layer, first, rows, taps, left=0):
        for at, share in taps:
            layer.weight[(slice(first, first + rows.size(0)), slice(left, left + rows.size(1)), *at)] += rows * share

    middle = [((2, 1, 1), 1.0)]
    for part in (0, 8, 16):
        settle(decoder.conv_in, part, signs, middle, left=part * 3 // 8)
        settle(encoder.conv_out, part * 3 // 8, signs.T, [((2, 1, 1), 0.4)], left=part)
    settle(encoder.conv_in, 0, signs, middle)
    settle(decoder.conv_out, 0, signs.T, middle)
    encoder.conv_in.bias[6:8] = 1
    decoder.conv_in.bias[6:8] = 1
    mean = [((1, 0, 0), 0.5), ((2, 0, 0), 0.5)]
    gap = [((1, 0, 0), -1.0), ((2, 0, 0), 1.0)]
    block = [((y, x), 0.25) for y in range(2) for x in range(2)]
    linear = [((y, x), (0.25, 0.5, 0.25)[y] * (0.25, 0.5, 0.25)[x]) for y in range(3) for x in range(3)]
    for part in (encoder, decoder):
        for name, layer in part.named_modules():
            if name.endswith("conv_shortcut") and isinstance(layer, torch.nn.Conv3d):
                settle(layer, 0, torch.eye(min(16, *layer.weight.shape[:2])), [((0, 0, 0), 1.0)])
            elif name.endswith("time_conv") and part is encoder:
                settle(layer, 8, torch.eye(8), gap)
                settle(layer, 0, torch.eye(8), mean)
                if layer.weight.size(0) > 16:
                    settle(layer, 16, torch.eye(8), mean, left=8)
            elif name.endswith("time_conv"):
                half, now = layer.weight.size(0) // 2, [((2, 0, 0), 1.0)]
                for first, side in ((0, -0.5), (half, 0.5)):
                    settle(layer, first, torch.eye(8), now)
                    add(layer, first, torch.eye(8) * side, now, left=8)
                    settle(layer, first + 8, torch.eye(8), now, left=16)
            elif name.endswith("resample.1"):
                count = min(16, layer.weight.size(0))
                settle(layer, 0, torch.eye(count), block if part is encoder else linear)
    for layer in (model.quant_conv, model.post_quant_conv):
        settle(layer, 0, torch.eye(layer.weight.size(0)), [((0, 0, 0), 1.0)])


def channels_last(model):
    for weight in model.parameters():
        if weight.dim() > 3:
            layout = torch.channels_last_3d if weight.dim() == 5 else torch.channels_last
            weight.data = weight.data.contiguous(memory_format=layout)
    return model


def resample(self, x, feat_cache=None, feat_idx=[0]):
    """All frames at once, equal to frames one after another with their caches: the first frame passes the steps in time
    as it is, and the later ones see no further back than it."""
    if feat_cache is not None:
        return one_by_one(self, x, feat_cache, feat_idx)
    if self.mode == "upsample3d" and x.size(2) > 1:
        later = self.time_conv(x[:, :, 1:])
        batch, channels, frames, height, width = later.shape
        later = later.view(batch, 2, channels // 2, frames, height, width)
        later = later.permute(0, 2, 3, 1, 4, 5).reshape(batch, channels // 2, frames * 2, height, width)
        x = torch.cat([x[:, :, :1], later], 2)
    batch, _, frames, height, width = x.shape
    x = self.resample(x.transpose(1, 2).flatten(0, 1))
    x = x.view(batch, frames, *x.shape[1:]).transpose(1, 2)
    if self.mode == "downsample3d" and frames > 1:
        x = torch.cat([x[:, :, :1], self.time_conv(x)], 2)
    return x


def norm(self, x):
    """The same sums in one pass, for channels that lie last in memory."""
    x = torch.nn.functional.rms_norm(x.movedim(1, -1), (x.size(1),), self.gamma.flatten(), 1e-12)
    return x.movedim(-1, 1)


one_by_one = autoencoder_kl_wan.WanResample.forward
autoencoder_kl_wan.WanResample.forward = resample
autoencoder_kl_wan.WanRMS_norm.forward = norm


def encode(model, x):
    """Mean and log variance of latents for whole clips."""
    return model.quant_conv(model.encoder(x)).chunk(2, 1)


def decode(model, z):
    return model.decoder(model.post_quant_conv(z), first_chunk=True)


def batch(rng, count, size, frames):
    """Parts of clips; most of them show an edge."""
    clips, weights = [], []
    for _ in range(count):
        found = scenes.clip(rng)
        room, at = scenes.SIDE - size, rng.randrange(scenes.FRAMES)
        first = min(max(at - rng.randrange(frames), 0), scenes.FRAMES - frames)
        turn, away = rng.uniform(0, 2 * math.pi), found.radius[at] * rng.uniform(0.3, 1.1)
        left = min(max(int(found.x[at] + away * math.cos(turn) - size / 2), 0), room)
        top = min(max(int(found.y[at] + away * math.sin(turn) - size / 2), 0), room)
        image, covered = scenes.draw(found, left, top, size)
        image, covered = image[first : first + frames], covered[first : first + frames]
        clips.append(image)
        covered = torch.from_numpy(covered)[:, None]
        near = torch.nn.functional.max_pool2d(covered, 5, 1, 2) + torch.nn.functional.max_pool2d(-covered, 5, 1, 2)
        share = covered.mean().clamp(0.02, 0.98)
        balance = covered / share * 0.5 + (1 - covered) / (1 - share) * 0.5
        weights.append((balance.clamp(max=4) + 2 * near).transpose(0, 1))
    x = torch.from_numpy(np.stack(clips)).permute(0, 4, 1, 2, 3) / 127.5 - 1
    return x.float().contiguous(memory_format=torch.channels_last_3d), torch.stack(weights).float()


def loss_of(model, x, weight):
    mean, spread = encode(model, x)
    spread = spread.clamp(-30, 20)
    y = decode(model, mean + torch.randn_like(mean) * (0.5 * spread).exp()).float()
    gap = y - x
    error = (weight * (gap.abs() + gap * gap)).sum() / weight.sum() / 3
    divergence = 0.5 * (mean * mean + spread.exp() - 1 - spread)
    return error + 1e-5 * divergence.mean() * CHANNELS, error, gap


def main():
    parser = options(minutes=45.0, rate=0.015, threads=2)
    parser.add_argument("--decoder", action="store_true")
    arguments = begin(parser, seed=1)
    threads = Threads(arguments.threads)
    model = network()
    if arguments.decoder:
        model.load_state_dict(torch.load(CHECKPOINT)["average"])
        model.encoder.requires_grad_(False)
        model.quant_conv.requires_grad_(False)
    training = Training(DECODER if arguments.decoder else CHECKPOINT, model, optimizers([model], arguments.rate, 2e-3),
                        unit="clips", decay=0.995)
    rng, errors, squares = random.Random(100 + training.count), [], []

    def report():
        quality = 10 * math.log10(4 / np.mean(squares[-50:]))
        return f"error {np.mean(errors[-50:]):.4f}, {quality:.1f} dB, share {share:.2f}, {threads.count} threads"

    for share in training.steps(minutes=arguments.minutes, report=report):
        threads.step()
        training.set_rates(warm_up(training.count, 400) * cosine(share))
        size, frames, count = (32, 5, 4) if share < 0.6 else (32, 9, 4) if share < 0.85 else (64, 9, 1)
        x, weight = batch(rng, count, size, frames)
        loss, error, gap = loss_of(model, x, weight)
        errors.append(error.item())
        squares.append(gap.detach().square().mean().item())
        training.step(loss, count, count)


if __name__ == "__main__":
    main()
