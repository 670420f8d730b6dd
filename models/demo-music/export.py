"""Writes the trained networks as a model folder in the layout of diffusers, in f16, and the song that diffusers' own pipeline
makes with it.

    python export.py              the folder
    python export.py --reference  reference.json (needs the folder)
    python export.py --measure N  judges N songs of held-out captions by diffusers' own pipeline and the folder
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import AceStepPipeline, FlowMatchEulerDiscreteScheduler

import melodies
import tones
import train_network
import vocabulary
from judge import judge

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish, write_json, write_wave  # noqa: E402

HERE = Path(__file__).parent
PROMPT, SECONDS, SEED = "a fast guitar melody that rises from C", 4.0, 7
# Every so many samples are kept in `reference.json`.
EVERY = 41
INDEX = {
    "_class_name": "AceStepPipeline", "_diffusers_version": "0.42.0",
    "audio_token_detokenizer": [None, None], "audio_tokenizer": [None, None],
    "condition_encoder": ["ace_step", "AceStepConditionEncoder"],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"], "text_encoder": ["transformers", "Qwen3Model"],
    "tokenizer": ["transformers", "PreTrainedTokenizerFast"], "transformer": ["diffusers", "AceStepTransformer1DModel"],
    "vae": ["diffusers", "AutoencoderOobleck"],
}
PARTS = ("start", "pattern", "tempo", "timbre")


def write():
    (HERE / "tokenizer").mkdir(exist_ok=True)
    size = len(vocabulary.write(HERE / "tokenizer"))
    kept = torch.load(HERE / train_network.CHECKPOINT)
    modules = train_network.networks(size)
    for module, state in zip(modules, kept["average"]):
        module.load_state_dict(state)
    count = 0
    for name, module in zip(("text_encoder", "condition_encoder", "transformer", "vae"), (*modules, tones.network())):
        count += sum(weight.numel() for weight in module.parameters())
        for weight in module.parameters():
            weight.data = weight.data.contiguous()
        module.half().save_pretrained(HERE / name, safe_serialization=True)
    FlowMatchEulerDiscreteScheduler(num_train_timesteps=1, shift=1.0).save_pretrained(HERE / "scheduler")
    write_json(HERE / "model_index.json", INDEX)
    print(f"{publish(HERE)} bytes, {count} parameters, {kept['seen']} samples")


def pipeline():
    pipe = AceStepPipeline.from_pretrained(HERE, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def play(pipe, prompt, seconds=SECONDS, seed=SEED):
    generator = torch.Generator().manual_seed(seed)
    return pipe(prompt, audio_duration=seconds, num_inference_steps=train_network.STEPS, shift=train_network.SHIFT,
                generator=generator).audios[0, 0].numpy()


def reference():
    sound = play(pipeline(), PROMPT)
    write_json(HERE / "reference.json", {
        "prompt": PROMPT, "seconds": SECONDS, "seed": SEED, "steps": train_network.STEPS, "rate": tones.RATE,
        "count": len(sound), "every": EVERY, "samples": [round(float(sample), 4) for sample in sound[::EVERY]]},
        indent=None, separators=(",", ":"))
    print(len(sound), judge(sound))


def measure(count, seconds, seed):
    pipe, right = pipeline(), []
    for at, melody in enumerate(melodies.held_out(count)):
        caption = melodies.caption(melody)
        sound = play(pipe, caption, seconds, seed + at)
        found = judge(sound)
        right.append([a == b for a, b in zip(found, melody.parts())])
        print("right" if all(right[-1]) else f"wrong {found}", caption, flush=True)
        write_wave(HERE / "out" / f"{at}.wav", sound, tones.RATE)
    right = np.array(right)
    parts = ", ".join(f"{name} {share:.2f}" for name, share in zip(PARTS, right.mean(0)))
    print(f"{parts}; all {right.all(1).sum()} of {len(right)}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments.add_argument("--measure", type=int)
    arguments.add_argument("--seconds", type=float, default=SECONDS)
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    if arguments.reference:
        reference()
    elif arguments.measure:
        measure(arguments.measure, arguments.seconds, arguments.seed)
    else:
        write()


if __name__ == "__main__":
    main()
