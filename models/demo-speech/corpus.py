"""Sentences in the voice to learn, by espeak-ng: samples, frames of each token, pitch and loudness."""

import random

import numpy as np
from scipy.signal import resample_poly

import phonemes
import words
from espeak import Speaker

RATE, HOP = 24000, 240
VOICE = {"voice": "en-us", "speed": 145, "pitch": 50, "variety": 40}
LOWEST, HIGHEST = 65, 170
# Frames of pitch that are no error.
LEAST_VOICED = 4


def pitch_of(samples, count):
    """In hertz every 10 ms, 0 where there is none: the highest of the correlations of the sound with itself."""
    width, size = 1024, 2048
    padded = np.pad(samples, (width, width + HOP * 2))
    starts = np.arange(count) * HOP + HOP // 2 + width - width // 2
    frames = padded[starts[:, None] + np.arange(width)] * np.hanning(width)
    power = np.abs(np.fft.rfft(frames, size)) ** 2
    shape = np.abs(np.fft.rfft(np.hanning(width), size)) ** 2
    found, own = np.fft.irfft(power)[:, : width // 2], np.fft.irfft(shape)[: width // 2]
    found = found / (found[:, :1] + 1e-9) * (own[0] / own)
    lags = slice(RATE // HIGHEST, RATE // LOWEST)
    best = found[:, lags].argmax(1) + lags.start
    # Half of it, where that is nearly as good.
    half = best // 2
    rows = np.arange(count)
    is_half = (half >= lags.start) & (found[rows, np.maximum(half, 1)] > 0.9 * found[rows, best])
    best = np.where(is_half, half, best)
    left, here, right = (found[rows, best + step] for step in (-1, 0, 1))
    exact = best + 0.5 * (left - right) / (left - 2 * here + right - 1e-9)
    is_voiced = (found[rows, best] > 0.6) & (loudness_of(samples, count) > 0.8)
    pitch = np.where(is_voiced, RATE / exact, 0).astype(np.float32)
    edges = np.flatnonzero(np.diff(np.r_[0, is_voiced.astype(int), 0]))
    for begins, ends in zip(edges[::2], edges[1::2]):
        if ends - begins < LEAST_VOICED:
            pitch[begins:ends] = 0
    return pitch


def loudness_of(samples, count):
    """Tens of decibels every 10 ms; 0 is silence."""
    padded = np.pad(samples, (HOP, HOP * 3))
    starts = np.arange(count) * HOP + HOP // 2
    frames = padded[starts[:, None] + np.arange(2 * HOP)] * np.hanning(2 * HOP)
    return (4 + np.log10(np.sqrt((frames**2).mean(1)) + 1e-4)).clip(0).astype(np.float32)


class Corpus:
    def __init__(self, seed):
        self.rng, self.speaker = random.Random(seed), Speaker()

    def say(self, some, marks):
        text = [word + (mark if mark == "," else "") for word, mark in zip(some, marks)]
        found = self.speaker.say(text, **VOICE)
        if found is None:
            return None
        samples, _, spoken = found
        samples = resample_poly(samples, 160, 147).astype(np.float32)
        text, frames = phonemes.aligned(some, marks, spoken, len(samples) / RATE)
        # Silence at the end is short.
        frames[-1] = min(frames[-1], 6)
        if marks[-1]:
            frames[-2] = min(frames[-2], 8)
        count = 2 * int(frames.sum())
        samples = np.pad(samples, (0, max(0, count * HOP - len(samples))))[: count * HOP]
        return {"words": some, "ids": [0, *phonemes.tokens_of(text), 0], "frames": frames.astype(np.int64), "samples": samples,
                "pitch": pitch_of(samples, count), "loudness": loudness_of(samples, count)}

    def draw(self, least=words.LEAST, most=words.MOST):
        """A sentence with marks behind some of its words; none that is held out."""
        rng = self.rng
        while True:
            some = words.seen(rng, least, most)
            marks = ["," if rng.random() < 0.12 else "" for _ in some]
            marks[-1] = rng.choice(["", "", *phonemes.MARKS.replace(",", "")])
            found = self.say(some, marks)
            if found is not None and len(found["ids"]) <= 98:
                return found


if __name__ == "__main__":
    import time

    corpus, began = Corpus(1), time.time()
    found = [corpus.draw() for _ in range(20)]
    print((time.time() - began) / 20, "s each")
    one = found[0]
    print(one["words"], one["frames"], len(one["samples"]) / RATE)
    print(one["pitch"].round().astype(int).tolist())
    print(one["loudness"].round(1).tolist())
