"""Compares what `worker` speaks with ONNX Runtime on the same phonemes, and lets a Whisper write down English sentences.

    python tests/models/speaking.py WORKER MODEL WHISPER ONNX

MODEL is a folder that `tests/models/kokoro.py` wrote, WHISPER one of `tests/models/whisper.py`, ONNX the file that MODEL came
from, in f32 (`tests/models/unquantized.py`). Needs numpy, onnxruntime and safetensors from PyPI. The worker adds noise and the
file does not, so sounds are compared by their logarithms in mel bands, and by their levels. In each voice, the wrong letters in what the Whisper
hears may be 1.2 times those of ONNX Runtime's sounds.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import onnxruntime
from safetensors.numpy import load_file

VOICE = "jf_alpha"
PHONEMES = [
    "ðə skˈI əbˈʌv ðə pˈɔɹt wʌz ðə kˈʌləɹ ʌv tˈɛləvˌɪʒən, tˈund tə ɐ dˈɛd ʧˈænᵊl.",
    "həlˈO wˈɜɹld, ðɪs ɪz ɐ smˈɔl tˈɛst.",
    "kæn ju hˈɪɹ mˌi? ˌI wˈʊd lˈIk tə nˈO wˌʌt ju θˈɪŋk əbˌWt ˈɔl ʌv ðˈɪs bəfˈɔɹ wi ɡˌO hˈOm təmˈɑɹO mˈɔɹnɪŋ.",
]
# What these say.
SAID = [
    "The sky above the port was the color of television tuned to a dead channel.",
    "Hello world, this is a small test.",
    "Can you hear me? I would like to know what you think about all of this before we go home tomorrow morning.",
]
SENTENCES = [
    "The quick brown fox jumps over the lazy dog near the river.",
    "In 1984 the museum sold twelve paintings for $350 each.",
    "Please send the letter to Doctor Smith before the end of November.",
]
# As a listener writes them down.
HEARD = [SENTENCES[0], SENTENCES[1], "Please send the letter to Dr. Smith before the end of November."]
MOST_WRONG = .2
MOST_DISTANCE = 3.
# In decibels.
MOST_LEVEL = 1.
# The file is louder than the network that it was exported from. An inverse STFT divides by the overlapping windows, whose
# squares sum up to 1.5 here, but the export kept that sum for a single frame, so that only the first 20 samples are divided.
LOUDER = 1.5
# Wrong letters, in parts of the reference's.
MOST_LETTERS = 1.2


def read(path):
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768


def bands(sound, rate=24_000, width=1024, hop=256, count=80):
    """Decibels in mel bands, frame after frame."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(sound, width), width)[::hop] * np.hanning(width)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 1400), count + 2) / 2595) - 1)
    hertz = np.linspace(0, rate / 2, power.shape[1])
    rise, fall = (hertz - edges[:-2, None]) / np.diff(edges)[:-1, None], (edges[2:, None] - hertz) / np.diff(edges)[1:, None]
    return 10 * np.log10(power @ np.maximum(np.minimum(rise, fall), 0).T + 1e-4)


def distance(first, second):
    first, second = bands(first), bands(second)
    frames = min(len(first), len(second))
    return float(np.abs(first[:frames] - second[:frames]).mean())


def level(first, second):
    """Decibels by which the first is louder."""
    power = [float((sound ** 2).mean()) for sound in (first, second)]
    return 10 * np.log10(power[0] / power[1])


def write(path, sound):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", None))
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def speak(worker, model, text, target, voice=VOICE):
    given = ["--voice", voice, "--seed", "1", "--json"]
    run = subprocess.run([worker, "generate", str(model), text, "-o", str(target), *given], check=True, capture_output=True)
    return json.loads(run.stdout), read(target)


def hear(worker, whisper, sound):
    run = subprocess.run([worker, "transcribe", str(sound), "--model", whisper, "--language", "en", "--quiet"],
                         check=True, capture_output=True, text=True)
    return run.stdout.strip()


def words(text):
    return re.sub(r"[^a-z0-9$ ]", "", text.lower().replace("-", " ")).split()


def edits(found, wanted):
    row = list(range(len(wanted) + 1))
    for one in found:
        before, row = row, [row[0] + 1]
        for place, other in enumerate(wanted):
            row.append(min(before[place + 1] + 1, row[-1] + 1, before[place] + (one != other)))
    return row[-1]


def wrong(found, wanted):
    """Edits in parts of what is wanted."""
    return edits(found, wanted) / len(wanted)


def main(worker, model, whisper, onnx):
    model = Path(model)
    vocabulary = json.loads((model / "config.json").read_text())["vocab"]
    table = load_file(model / "voices" / f"{VOICE}.safetensors")["voice"]
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])

    def feed_of(phonemes, table):
        tokens = [vocabulary[symbol] for symbol in phonemes]
        return {"tokens": np.array([[0, *tokens, 0]]), "style": table[len(tokens) - 1].reshape(1, -1), "speed": np.ones(1, np.float32)}

    failures = []
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "a.wav"
        for phonemes in PHONEMES:
            feed = feed_of(phonemes, table)
            session.run(None, feed)
            began = time.monotonic()
            wanted = session.run(None, feed)[0].ravel() / LOUDER
            spent = time.monotonic() - began
            report, found = speak(worker, model, f"[x](/{phonemes}/)", target)
            apart, louder = distance(found, wanted), level(found, wanted)
            seconds = len(found) / 24_000
            print(f"{len(phonemes)} phonemes: {len(found) / 600:.0f} frames, ONNX Runtime {len(wanted) / 600:.1f}; "
                  f"{apart:.2f} dB apart, {louder:+.2f} dB in level; "
                  f"{report['spent_seconds'] / seconds:.2f} and {spent / seconds:.2f} s a second of sound")
            if abs(len(found) - len(wanted)) > .03 * len(wanted) or apart > MOST_DISTANCE or abs(louder) > MOST_LEVEL:
                failures.append(phonemes)
        for sentence, heard in zip(SENTENCES, HEARD):
            report, _ = speak(worker, model, sentence, target)
            text = hear(worker, whisper, target)
            share = wrong(words(text), words(heard))
            print(f"{share:.0%} of the words wrong, {report['seconds']:.1f} s in {report['spent_seconds']:.1f} s: {text}")
            if share > MOST_WRONG:
                failures.append(sentence)
        for file in sorted((model / "voices").glob("*.safetensors")):
            voice, table = file.stem, load_file(file)["voice"]
            ours = theirs = 0
            for phonemes, said in zip(PHONEMES, SAID):
                wanted = " ".join(words(said))
                speak(worker, model, f"[x](/{phonemes}/)", target, voice)
                ours += edits(" ".join(words(hear(worker, whisper, target))), wanted)
                write(target, session.run(None, feed_of(phonemes, table))[0].ravel() / LOUDER)
                theirs += edits(" ".join(words(hear(worker, whisper, target))), wanted)
            letters = sum(len(said) for said in SAID)
            print(f"{voice}: {ours} of {letters} letters wrong, of ONNX Runtime's sounds {theirs}")
            if ours > MOST_LETTERS * theirs:
                failures.append(voice)
    if failures:
        raise SystemExit("too far from the reference: " + "; ".join(failures))


if __name__ == "__main__":
    main(*sys.argv[1:])
