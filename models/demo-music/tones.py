"""The autoencoder: a bank of tones in Oobleck's layers. Its weights are computed, not trained.

All notes are multiples of the rate of frames (just intonation: 24 : 27 : 30 : 32 : 36 : 40 : 45), so that each note has
the same samples in every frame. The decoder's first activation squares sums of a note and the brightness, which gives
their product, the overtones; its widest layer keeps the samples of each note, and its last one puts them in a row. The
encoder is the least squares solution the other way round. Residual units add nothing.
"""

import numpy as np
import torch
from diffusers import AutoencoderOobleck

import melodies

RATE = 16000
STRIDES = (28, 52)
HOP = STRIDES[0] * STRIDES[1]
WIDTH = STRIDES[0]
# Waves of each note in a frame.
WAVES = [24, 27, 30, 32, 36, 40, 45, 48, 54, 60, 64, 72, 80]
OVERTONES = {2: 0.35, 3: 0.5, 4: 0.2, 5: 0.25}
LOUDNESS = 0.4
# The share of the frame over which one frame fades into the next.
FADE = 0.3
# Of the activation x + sin(alpha x)^2 / beta, nearly x + CURVE x^2.
ALPHA, CURVE = 0.1, 0.25
NOTES, BRIGHT = len(melodies.NOTES), melodies.BRIGHT


def frequency(place):
    return WAVES[place] * RATE / HOP


def tones(places):
    """The samples of each note and of its overtones at such places, where a frame begins at 0."""
    at = 2 * np.pi * np.asarray(places) / HOP
    plain = np.stack([np.sin(waves * at) for waves in WAVES])
    bright = np.stack([sum(share * np.sin(many * waves * at) for many, share in OVERTONES.items()) for waves in WAVES])
    return LOUDNESS * plain, LOUDNESS * bright


def fade():
    """The loudness of a frame from half a frame before it to half a frame after it."""
    at = (np.arange(2 * HOP) + 0.5) / HOP - 0.5
    edge = lambda x: 0.5 - 0.5 * np.cos(np.pi * np.clip(x / FADE + 0.5, 0, 1))
    return edge(at) * edge(1 - at)


@torch.no_grad()
def settle(layer, weight, bias=None):
    """Stores a weight as its direction and its length; rows of zeros keep a direction of ones."""
    weight = torch.as_tensor(weight, dtype=torch.float32)
    length = weight.flatten(1).norm(dim=1).view(-1, 1, 1)
    layer.weight_g.copy_(length)
    layer.weight_v.copy_(torch.where(length > 0, weight, torch.ones_like(weight)))
    if layer.bias is not None:
        layer.bias.copy_(torch.zeros_like(layer.bias) if bias is None else torch.as_tensor(bias))


@torch.no_grad()
def network():
    model = AutoencoderOobleck(
        encoder_hidden_size=2 * melodies.CHANNELS, downsampling_ratios=list(STRIDES), channel_multiples=[1, 1],
        decoder_channels=WIDTH, decoder_input_channels=melodies.CHANNELS, audio_channels=1, sampling_rate=RATE)
    for name, layer in model.named_modules():
        if name.endswith(("snake1", "snake2")):
            layer.alpha.fill_(-12)
            layer.beta.fill_(0)
        elif ".res_unit" in name and name.endswith(("conv1", "conv2")):
            settle(layer, torch.zeros_like(layer.weight_v))
    decoder(model.decoder)
    encoder(model.encoder)
    return model.eval()


def decoder(part):
    """Of a first layer with each note, each note with the brightness added, and the brightness."""
    weight, bias = np.zeros((WIDTH, melodies.CHANNELS, 7)), np.zeros(WIDTH)
    middle = 3
    for note in range(NOTES):
        weight[note, note, middle] = weight[NOTES + note, note, middle] = 1 / melodies.LOUD
    for row in range(NOTES, 2 * NOTES + 1):
        weight[row, BRIGHT, middle] = 0.5 / melodies.SIDE
        bias[row] = 0.5
    settle(part.conv1, weight, bias)
    part.block[0].snake1.alpha.fill_(np.log(ALPHA))
    part.block[0].snake1.beta.fill_(np.log(ALPHA**2 / CURVE))
    plain, bright = tones(np.arange(2 * HOP) - HOP // 2)
    plain, bright = plain * fade(), bright * fade() / (2 * CURVE)
    rows = np.concatenate([plain - bright, bright, -bright.sum(0, keepdims=True), np.zeros((WIDTH - 2 * NOTES - 1, 2 * HOP))])
    # A place of the middle level is a channel for each of its samples.
    settle(part.block[0].conv_t1, rows.reshape(WIDTH, -1, STRIDES[0]).transpose(0, 2, 1))
    weight = np.zeros((WIDTH, WIDTH, 2 * STRIDES[0]))
    for sample in range(STRIDES[0]):
        weight[sample, 0, STRIDES[0] // 2 + sample] = 1
    settle(part.block[1].conv_t1, weight)
    weight = np.zeros((1, WIDTH, 7))
    weight[0, 0, middle] = 1
    settle(part.conv2, weight)


def encoder(part):
    wide = 2 * melodies.CHANNELS
    weight = np.zeros((wide, 1, 7))
    weight[0, 0, 3] = 1
    settle(part.conv1, weight)
    weight = np.zeros((wide, wide, 2 * STRIDES[0]))
    for sample in range(STRIDES[0]):
        weight[sample, 0, STRIDES[0] // 2 + sample] = 1
    settle(part.block[0].conv1, weight)
    found = np.linalg.pinv(np.concatenate(tones(np.arange(HOP)))).T
    rows = np.zeros((wide, 2 * HOP))
    rows[:NOTES, HOP // 2 : HOP // 2 + HOP] = melodies.LOUD / (1 + CURVE) * found[:NOTES]
    rows[BRIGHT, HOP // 2 : HOP // 2 + HOP] = 2 * melodies.SIDE * found[NOTES:].sum(0)
    weight = np.zeros((wide, wide, 2 * STRIDES[1]))
    weight[:, : STRIDES[0]] = rows.reshape(wide, -1, STRIDES[0]).transpose(0, 2, 1)
    settle(part.block[1].conv1, weight)
    weight, bias = np.zeros((wide, wide, 3)), np.zeros(wide, np.float32)
    for channel in range(melodies.CHANNELS):
        weight[channel, channel, 1] = 1
    bias[BRIGHT] = -melodies.SIDE
    # Hardly any noise.
    bias[melodies.CHANNELS :] = -8
    settle(part.conv2, weight, bias)
