"""The files of a model folder."""

import json
import wave
from pathlib import Path

import numpy as np


def write_json(path, value, indent=2, **options):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False, **options) + "\n")


def publish(folder):
    """Makes the files of the model readable for all users, and returns their size in bytes."""
    files = [path for path in folder.rglob("*") if path.suffix in (".safetensors", ".json", ".txt") and path.name != "reference.json"
             and not {"checkpoints", "out"} & set(path.relative_to(folder).parts)]
    for path in files:
        path.chmod(0o644)
    return sum(path.stat().st_size for path in files)


def write_wave(path, samples, rate):
    """One channel in 16 bits. Returns the rounded samples."""
    Path(path).parent.mkdir(exist_ok=True)
    samples = (np.clip(samples, -1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return samples
