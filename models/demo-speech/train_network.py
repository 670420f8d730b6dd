"""Trains the small Kokoro. Goes on from its last checkpoint; ends after so many minutes.

    python train_network.py --minutes 35

The corpus knows when each phoneme sounds, so each part learns alone: rhythm, pitch and loudness by their errors, and the sound by
the errors of its spectra, with the true rhythm, pitch and loudness.
"""

import os
import random
import sys
import time
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
import corpus  # noqa: E402
import network  # noqa: E402

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, linear, options, warm_up  # noqa: E402
from muon import adam, optimizers  # noqa: E402

CHECKPOINT, SENTENCES = "checkpoints/network.pt", "checkpoints/sentences.pt"
BATCH, FRAMES, PROSODY_BATCH = 2, 75, 8
SIZES = (240, 600, 1200)
BANDS = 80


def fresh():
    model = network.plain(network.parts())
    with torch.no_grad():
        for module in (model["decoder"].F0_conv, ):
            module.weight.mul_(0.01)
        predictor = model["predictor"]
        predictor.duration_proj.linear_layer.bias.fill_(-1.9)
        predictor.F0_proj.weight.mul_(40)
        predictor.F0_proj.bias.fill_(60)
        predictor.N_proj.bias.fill_(2)
        bins = network.CONFIG["istftnet"]["gen_istft_n_fft"] // 2 + 1
        model["decoder"].generator.conv_post.bias[:bins] -= 3
    return model


def mel_filters(size):
    top = lambda hertz: 2595 * np.log10(1 + hertz / 700)
    edges = 700 * (10 ** (np.linspace(top(50), top(11000), BANDS + 2) / 2595) - 1)
    bins = np.linspace(0, network.RATE / 2, size // 2 + 1)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    filters = np.minimum(rising, falling).clip(0)
    return torch.from_numpy(filters / (filters.sum(1, keepdims=True) + 1e-9)).float()


class Spectra:
    def __init__(self):
        self.windows = [torch.hann_window(size) for size in SIZES]
        self.filters = mel_filters(SIZES[-1])

    def loss(self, made, wanted):
        """Differences of the logarithms of spectra of all sizes, and of bands as ears have them."""
        total = 0
        for size, window in zip(SIZES, self.windows):
            pair = torch.stft(torch.cat([made, wanted]), size, size // 4, window=window, return_complex=True)
            power = pair.real**2 + pair.imag**2
            floor = (2e-5 * size) ** 2
            a, b = (power + floor).log().chunk(2)
            total = total + (a - b).abs().mean() / 2
            if size == SIZES[-1]:
                c, d = ((self.filters @ power) + floor).log().chunk(2)
                total = total + 1.5 * (c - d).abs().mean()
        return total


def rows_of(found):
    """Tokens, their number and the mask of sentences together."""
    lengths = torch.tensor([len(one["ids"]) for one in found])
    ids = torch.zeros(len(found), int(lengths.max()), dtype=torch.long)
    for at, one in enumerate(found):
        ids[at, : len(one["ids"])] = torch.tensor(one["ids"])
    return ids, lengths, torch.arange(ids.size(1))[None] >= lengths[:, None]


def sound_loss(model, found, spectra, rng):
    ids, lengths, mask = rows_of(found)
    states = model["text_encoder"](ids, lengths, mask)
    count = min(FRAMES, *(int(one["frames"].sum()) for one in found))
    text, pitch, loudness, wanted = [], [], [], []
    for at, one in enumerate(found):
        places = torch.repeat_interleave(torch.arange(len(one["ids"])), torch.from_numpy(one["frames"]))
        start = rng.randrange(len(places) - count + 1)
        text.append(states[at][:, places[start : start + count]])
        for kept, name, size in ((pitch, "pitch", 2), (loudness, "loudness", 2), (wanted, "samples", 2 * network.HOP)):
            kept.append(torch.from_numpy(one[name][start * size : (start + count) * size]))
    style = network.styles()[:, : network.STYLE].expand(len(found), -1)
    pitch, loudness = torch.stack(pitch), torch.stack(loudness)
    # The predicted ones are not exact either.
    pitch = pitch * (1 + 0.03 * torch.randn(len(found), 1))
    loudness = loudness + 0.1 * torch.randn(len(found), 1)
    made = model["decoder"](torch.stack(text), pitch, loudness, style).squeeze(1)
    return spectra.loss(made, torch.stack(wanted))


def prosody_losses(model, found):
    ids, lengths, mask = rows_of(found)
    style = network.styles()[:, network.STYLE :].expand(len(found), -1)
    predictor = model["predictor"]
    bert = model["bert"](ids, attention_mask=(~mask).int())
    states = predictor.text_encoder(model["bert_encoder"](bert).transpose(-1, -2), style, lengths, mask)
    packed = torch.nn.utils.rnn.pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
    rhythm = torch.nn.utils.rnn.pad_packed_sequence(predictor.lstm(packed)[0], batch_first=True)[0]
    frames = torch.sigmoid(predictor.duration_proj(rhythm)).sum(-1)
    wanted = torch.zeros_like(frames)
    for at, one in enumerate(found):
        wanted[at, : len(one["ids"])] = torch.from_numpy(one["frames"]).float()
    durations = (frames - wanted).abs()[~mask].mean()
    # Curves of a few sentences of one length, whose norms are along time.
    count = min(int(one["frames"].sum()) for one in found)
    aligned, pitch, loudness = [], [], []
    for at, one in enumerate(found):
        places = torch.repeat_interleave(torch.arange(len(one["ids"])), torch.from_numpy(one["frames"]))[:count]
        aligned.append(states[at].T[:, places])
        pitch.append(torch.from_numpy(one["pitch"][: 2 * count]))
        loudness.append(torch.from_numpy(one["loudness"][: 2 * count]))
    made = predictor.F0Ntrain(torch.stack(aligned), style)
    return durations, (made[0] - torch.stack(pitch)).abs().mean() / 30, (made[1] - torch.stack(loudness)).abs().mean()


def main():
    arguments = begin(options(minutes=35.0, rate=0.012, adam_rate=3e-3, sentences=900), seed=4)
    model = fresh()
    rest = [weight for name in ("bert", "bert_encoder", "predictor", "text_encoder") for weight in model[name].parameters()]
    steppers = [*optimizers([model["decoder"]], arguments.rate, arguments.adam_rate, ("conv_post", "noise_convs", "fc", "conv_in")),
                adam(rest, arguments.adam_rate)]
    training = Training(CHECKPOINT, model, steppers, clip=5.0, decay=0.99)
    rng, spectra = random.Random(200 + training.count), Spectra()
    began = time.time()
    speaker = corpus.Corpus(300 + training.count)
    size = lambda one: int(one["frames"].sum())
    if os.path.exists(SENTENCES):
        sentences = torch.load(SENTENCES, weights_only=False)
    else:
        sentences = sorted((speaker.draw() if at % 8 else speaker.draw(1, 14) for at in range(arguments.sentences)), key=size)
        torch.save(sentences, SENTENCES)
    print(f"{len(sentences)} sentences after {time.time() - began:.0f} s", flush=True)
    errors, curves = [], []

    def report():
        return (f"sound {np.mean(errors[-30:]):.3f}, rhythm, pitch, loudness "
                + " ".join(f"{error:.3f}" for error in np.mean(curves[-15:], 0)))

    for share in training.steps(minutes=arguments.minutes, report=report):
        training.set_rates(warm_up(training.count, 60) * linear(share, 1.6))
        near = lambda count: sentences[(at := rng.randrange(len(sentences) - count)) : at + count]
        loss = sound_loss(model, near(BATCH), spectra, rng)
        errors.append(loss.item())
        if training.count % 4 == 0:
            parts = prosody_losses(model, near(PROSODY_BATCH))
            curves.append([part.item() for part in parts])
            loss = loss + sum(parts)
        training.step(loss)


if __name__ == "__main__":
    main()
