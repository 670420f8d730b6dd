"""Writes the trained network as a model folder in the layout of transformers, in f16, and what transformers hears of a sentence.

    python export.py              the folder
    python export.py --reference  reference.json and reference.wav (needs the folder)
    python export.py --measure N  judges N held-out sentences of espeak-ng's voices by transformers and the folder
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

import sounds
import train_network
import vocabulary
import words
from judge import Listener

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish, write_wave  # noqa: E402

HERE = Path(__file__).resolve().parent
SENTENCE, SEED = "hello happy doctor two six nine".split(), 3


def write():
    kept = torch.load(HERE / train_network.CHECKPOINT, weights_only=False)
    model = train_network.network()
    model.load_state_dict(kept["average"])
    model.generation_config.alignment_heads = [[train_network.LAYERS - 1, head] for head in range(train_network.GUIDED)]
    model.half().save_pretrained(HERE, safe_serialization=True)
    vocabulary.write(HERE)
    count = sum(weight.numel() for weight in model.parameters())
    print(f"{publish(HERE)} bytes, {count} parameters, {kept['steps']} steps")


def reference():
    """The sound in 16 bits, and the tokens with their logarithms of probabilities."""
    listener = Listener()
    samples = sounds.Utterances(None, 0).speak(SENTENCE, voice="en-us")[0]
    samples = write_wave(HERE / "reference.wav", samples, sounds.RATE)
    tokens, average = listener.tokens(samples.astype(np.float32) / 32768)
    times = [(token - vocabulary.FIRST_TIME) * vocabulary.STEP for token in tokens if token >= vocabulary.FIRST_TIME]
    text = vocabulary.text_of(tokens)
    (HERE / "reference.json").write_text(json.dumps(
        {"text": text, "tokens": tokens, "from": round(times[0], 2), "to": round(times[-1], 2), "average_logprob": round(average, 4)}) + "\n")
    print(text, times, average)


def measure(count, seed):
    """Each sentence in four voices that training had beside others, at the usual speed, without noise."""
    listener, utterances = Listener(), sounds.Utterances(None, 0)
    voices, right = ["en-us", "en-us+f2", "en+m3", "en-us+m7"], []
    for some in words.held_out(count, seed):
        voice = voices[len(right) % len(voices)]
        heard = listener.hear(utterances.speak(some, voice=voice)[0])
        right.append(heard == " ".join(some))
        if not right[-1]:
            print(f"{voice}: {' '.join(some)} -> {heard}")
    print(f"{sum(right)} of {len(right)}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments.add_argument("--measure", type=int)
    arguments.add_argument("--seed", type=int, default=7)
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    if arguments.reference:
        reference()
    elif arguments.measure:
        measure(arguments.measure, arguments.seed)
    else:
        write()


if __name__ == "__main__":
    main()
