"""Writes the trained networks as a model folder in the layout of diffusers, in f16, and the clip that diffusers' own
pipeline makes with it.

    python export.py              the folder
    python export.py --reference  reference.json (needs the folder; runs diffusers and transformers)
    python export.py --measure N  judges N clips of held-out captions, with the folder's rounded weights
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from transformers import PreTrainedTokenizerFast, UMT5EncoderModel

import scenes
import train_autoencoder
import train_network
import vocabulary

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish, write_json  # noqa: E402

HERE = Path(__file__).parent
PROMPT = "a red circle moves to the right on a blue background"
SEED, STEPS, GUIDANCE = 7, 20, 4.0
INDEX = {
    "_class_name": "WanPipeline", "_diffusers_version": "0.35.0", "boundary_ratio": None, "expand_timesteps": False,
    "scheduler": ["diffusers", "UniPCMultistepScheduler"], "text_encoder": ["transformers", "UMT5EncoderModel"],
    "tokenizer": ["transformers", "PreTrainedTokenizerFast"], "transformer": ["diffusers", "WanTransformer3DModel"],
    "transformer_2": [None, None], "vae": ["diffusers", "AutoencoderKLWan"],
}


def write():
    (HERE / "tokenizer").mkdir(exist_ok=True)
    size = len(vocabulary.write(HERE / "tokenizer"))
    is_tuned = os.path.exists(HERE / train_autoencoder.DECODER)
    trained = torch.load(HERE / (train_autoencoder.DECODER if is_tuned else train_autoencoder.CHECKPOINT))
    kept = torch.load(HERE / train_network.CHECKPOINT)
    autoencoder = train_autoencoder.network()
    autoencoder.load_state_dict(trained["average"])
    autoencoder.register_to_config(latents_mean=[round(value, 5) for value in kept["mean"].tolist()],
                                   latents_std=[round(value, 5) for value in kept["std"].tolist()])
    text, network = train_network.networks(size)
    for module, state in zip((text, network), kept["average"]):
        module.load_state_dict(state)
    for name, module in (("vae", autoencoder), ("transformer", network), ("text_encoder", text)):
        for weight in module.parameters():
            weight.data = weight.data.contiguous()
        module.half().save_pretrained(HERE / name, safe_serialization=True)
    UniPCMultistepScheduler(**train_network.SCHEDULER).save_pretrained(HERE / "scheduler")
    write_json(HERE / "model_index.json", INDEX)
    print(f"{publish(HERE)} bytes, {trained['seen']} parts of clips, {kept['seen']} samples")


def pipeline():
    pipe = WanPipeline.from_pretrained(HERE, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def reference():
    """Mean colors of 8 x 8 fields of every frame, from 0 to 255."""
    clip = pipeline()(PROMPT, height=scenes.SIDE, width=scenes.SIDE, num_frames=scenes.FRAMES, num_inference_steps=STEPS,
                      guidance_scale=GUIDANCE, generator=torch.Generator().manual_seed(SEED)).frames[0]
    fields = clip.reshape(scenes.FRAMES, 8, scenes.SIDE // 8, 8, scenes.SIDE // 8, 3).mean((2, 4)) * 255
    fields = np.round(fields.astype(np.float64), 1)
    write_json(HERE / "reference.json", {
        "prompt": PROMPT, "negative_prompt": "", "seed": SEED, "steps": STEPS, "cfg_scale": GUIDANCE,
        "width": scenes.SIDE, "height": scenes.SIDE, "frames": scenes.FRAMES, "sampler": "uni_pc",
        "shift": train_network.SCHEDULER["flow_shift"], "fields": fields.tolist()},
        indent=None, separators=(",", ":"))
    train_network.sheet([clip * 255], HERE / "look-reference.png")
    print(train_network.judge(clip * 255))


def load():
    """Networks with the rounded weights, in f32."""
    text = UMT5EncoderModel.from_pretrained(HERE / "text_encoder", dtype=torch.float32)
    network = WanTransformer3DModel.from_pretrained(HERE / "transformer", torch_dtype=torch.float32)
    autoencoder = AutoencoderKLWan.from_pretrained(HERE / "vae", torch_dtype=torch.float32)
    train_network.speed_up(network)
    mean, std = (torch.tensor(values) for values in (autoencoder.config.latents_mean, autoencoder.config.latents_std))
    tokenize = train_network.tokens_of(PreTrainedTokenizerFast.from_pretrained(HERE / "tokenizer"))
    return (text.eval(), network.eval(), autoencoder.eval(), mean, std), tokenize


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments.add_argument("--measure", type=int)
    arguments.add_argument("--steps", type=int, default=STEPS)
    arguments.add_argument("--guidance", type=float, default=GUIDANCE)
    arguments.add_argument("--threads", type=int, default=1)
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.reference:
        reference()
    elif arguments.measure:
        networks, tokenize = load()
        right, clips = train_network.measure(networks, tokenize, arguments.measure, steps=arguments.steps,
                                             guidance=arguments.guidance)
        print(train_network.say(right))
        for found, is_right in zip(train_network.held_out(arguments.measure), right):
            print("right" if is_right.all() else "wrong", found.caption)
        train_network.sheet(clips[:42], HERE / "look.png")
    else:
        write()


if __name__ == "__main__":
    main()
