"""Writes the trained networks as a model folder as Kokoro's repackagings have it, in f16.

    python export.py              the folder
    python export.py --reference  reference.json: samples that the reference speaks (needs the folder)
    python export.py --measure N  N held-out sentences, heard by the small model that hears, all by the references and the folders
    python export.py --whisper DIR  as --measure, heard by faster-whisper and the CTranslate2 folder of a real Whisper
    python export.py --teach FILE  training sentences as sounds, for the training of the small model that hears
"""

import argparse
import json
import os
import random
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.signal import resample_poly

warnings.filterwarnings("ignore")
import network  # noqa: E402
import phonemes  # noqa: E402
import train_network  # noqa: E402
import words  # noqa: E402
from judge import small_listener  # noqa: E402

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish  # noqa: E402

HERE = Path(__file__).resolve().parent
SENTENCE = "hello happy doctor two six nine"
# Every so many samples are kept in `reference.json`.
EVERY = 37


def write():
    kept = torch.load(HERE / train_network.CHECKPOINT, weights_only=False)
    state = network.normed(kept["average"])
    # The position of each token is no weight.
    tensors = {name: value.half().contiguous() for name, value in state.items() if not name.endswith("position_ids")}
    save_file(tensors, HERE / "model.safetensors")
    save_file({network.VOICE: network.styles()[:, None].half().contiguous()}, HERE / "voices.safetensors")
    (HERE / "config.json").write_text(json.dumps(network.CONFIG, ensure_ascii=False, indent=1) + "\n")
    count = sum(value.numel() for value in tensors.values())
    print(f"{publish(HERE)} bytes, {count} numbers, {kept['steps']} steps")


def reference_network():
    model = network.parts()
    found = load_file(HERE / "model.safetensors")
    missing = model.load_state_dict({name: value.float() for name, value in found.items()}, strict=False)
    assert not missing.unexpected_keys and all(name.endswith("position_ids") for name in missing.missing_keys), missing
    return model.eval()


def text_of(some, mark="."):
    return " ".join(phonemes.WORDS[word] for word in some) + mark


@torch.no_grad()
def say(model, some, mark="."):
    """At 16 kHz, as the small model that hears takes it; and the times of the words."""
    text = text_of(some, mark)
    samples, durations = network.speak(model, phonemes.tokens_of(text))
    ends = np.cumsum(durations.numpy()) * phonemes.FRAME
    begins, at = [], 1
    for word in some:
        size = len(phonemes.WORDS[word])
        begins.append((word, (float(ends[at - 1]), float(ends[at + size - 1]))))
        at += size + 1
    return resample_poly(samples.numpy(), 2, 3).astype(np.float32), begins


def noise(count):
    """Numbers that every language makes alike: a row of integers, from -1.7 to 1.7."""
    found, state = np.empty(count), 1
    for at in range(count):
        state = (state * 1103515245 + 12345) % (1 << 31)
        found[at] = (state / (1 << 31) - 0.5) * 2 * 3**0.5
    return torch.from_numpy(found.astype(np.float32))


@torch.no_grad()
def reference():
    """In f64, with the noise of `noise`, whose part of each overtone is the engine's."""
    model, styles = reference_network().double(), network.styles().double()
    network.styles = lambda: styles
    torch.set_default_dtype(torch.float64)
    generator = model["decoder"].generator
    transform = generator.stft
    transform.window = torch.hann_window(transform.win_length, dtype=torch.float64)

    def exact(sound):
        # Rounding errors would turn the phase of a real number around.
        spectrum = torch.stft(sound, transform.filter_length, transform.hop_length, transform.win_length, window=transform.window,
                              return_complex=True)
        imaginary = torch.where(spectrum.imag.abs() < 1e-12, 0.0, spectrum.imag)
        return spectrum.abs(), torch.atan2(imaginary, spectrum.real)

    transform.transform = exact
    weights = generator.m_source.l_linear.weight[0]
    shared = noise(24000 * 6).double()

    def even(like):
        parts = weights / weights.norm() if like.shape[-1] == len(weights) else torch.zeros(1)
        return shared[None, : like.shape[1], None] * parts

    torch.randn_like = even
    torch.rand = lambda *shape, **_: torch.zeros(shape, dtype=torch.float64)
    tokens = phonemes.tokens_of(text_of(SENTENCE.split()))
    samples, durations = network.speak(model, tokens)
    kept = {"text": SENTENCE + ".", "tokens": tokens, "durations": durations.tolist(), "count": len(samples), "every": EVERY,
            "samples": [round(float(sample), 5) for sample in samples[::EVERY]]}
    (HERE / "reference.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    print(len(samples), float(samples.abs().max()), len(kept["samples"]))


def measure(count, seed, hear):
    model, right, errors, spoken = reference_network(), 0, 0, 0
    for some in words.held_out(count, seed):
        heard = hear(say(model, some)[0])
        right += heard == some
        wrong = distance(some, heard)
        errors, spoken = errors + wrong, spoken + len(some)
        if wrong:
            print(" ".join(some), "->", " ".join(heard))
    print(f"{right} of {count} sentences, {1 - errors / spoken:.3f} of {spoken} words")


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def real_listener(folder):
    from faster_whisper import WhisperModel

    model = WhisperModel(folder, device="cpu", compute_type="float32", cpu_threads=1)
    prompt = "Words: " + ", ".join(words.WORDS) + "."
    digits = dict(zip("0123456789", words.DIGITS))

    def hear(samples):
        found = model.transcribe(samples, language="en", beam_size=5, initial_prompt=prompt, without_timestamps=True)[0]
        text = " ".join(segment.text for segment in found).lower()
        text = re.sub(r"\d", lambda digit: f" {digits[digit[0]]} ", text)
        return re.sub(r"[^a-z ]", " ", text).split()

    return hear


def teach(path, count):
    """Sentences of training, at 16 kHz, with the times of words."""
    rng, model, found = random.Random(11), reference_network(), []
    for _ in range(count):
        some = words.seen(rng, 1 if rng.random() < 0.15 else words.LEAST, 10 if rng.random() < 0.2 else words.MOST)
        found.append(say(model, some, rng.choice(["", *phonemes.MARKS])))
    torch.save(found, path)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments.add_argument("--measure", type=int)
    arguments.add_argument("--whisper")
    arguments.add_argument("--teach")
    arguments.add_argument("--count", type=int, default=400)
    arguments.add_argument("--seed", type=int, default=7)
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    if arguments.reference:
        reference()
    elif arguments.measure:
        hear = real_listener(arguments.whisper) if arguments.whisper else small_listener()
        measure(arguments.measure, arguments.seed, hear)
    elif arguments.teach:
        teach(arguments.teach, arguments.count)
    else:
        write()


if __name__ == "__main__":
    main()
