"""Writes the trained networks as a model folder in the layout of diffusers, in f16, and what the reference
implementation draws with it.

    python export.py              the folder
    python export.py --reference  reference.jsonl and reference.png (needs the folder; runs diffusers and transformers)
    python export.py --measure N  judges N held-out prompts with the reference implementation
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from PIL import Image
from transformers import CLIPTextModel, CLIPTokenizer

import train_autoencoder
import train_network
import vocabulary

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish, write_json  # noqa: E402

HERE = Path(__file__).parent
PROMPT = "a red circle and a blue square on a white background"
SEED, STEPS, GUIDANCE = 7, 20, 4.0
INDEX = {
    "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0", "requires_safety_checker": False,
    "feature_extractor": [None, None], "image_encoder": [None, None], "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"], "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}
SCHEDULER = {"_class_name": "DDIMScheduler", **train_network.NOISE, "clip_sample": False, "set_alpha_to_one": False,
             "steps_offset": 1, "timestep_spacing": "leading", "rescale_betas_zero_snr": False}


def write():
    for name in ("tokenizer", "scheduler"):
        (HERE / name).mkdir(exist_ok=True)
    size = len(vocabulary.write(HERE / "tokenizer"))
    autoencoder = train_autoencoder.network()
    autoencoder.load_state_dict(torch.load(HERE / train_autoencoder.CHECKPOINT)["average"])
    kept = torch.load(HERE / train_network.CHECKPOINT)
    text, unet = train_network.networks(size, size - 1)
    for module, state in zip((text, unet), kept["average"]):
        module.load_state_dict(state)
    autoencoder.register_to_config(scaling_factor=kept["scale"], shift_factor=None)
    for name, module in (("vae", autoencoder), ("unet", unet), ("text_encoder", text)):
        module.half().save_pretrained(HERE / name, safe_serialization=True)
    write_json(HERE / "scheduler/scheduler_config.json", SCHEDULER)
    write_json(HERE / "model_index.json", INDEX)
    print(f"{publish(HERE)} bytes, {kept['seen']} samples")


def reference():
    """Networks with the rounded weights, in f32."""
    text = CLIPTextModel.from_pretrained(HERE / "text_encoder", torch_dtype=torch.float32)
    unet = UNet2DConditionModel.from_pretrained(HERE / "unet", torch_dtype=torch.float32)
    autoencoder = AutoencoderKL.from_pretrained(HERE / "vae", torch_dtype=torch.float32)
    tokenizer = CLIPTokenizer.from_pretrained(HERE / "tokenizer")
    return (text.eval(), unet.eval(), autoencoder.eval(), autoencoder.config.scaling_factor), train_network.tokens_of(tokenizer)


@torch.no_grad()
def draw_as_we_do(networks, tokenize, prompt, seed, steps, guidance, shape=(16, 16)):
    """Euler over even training steps in the convention of k-diffusion, as our engine draws by `normal` and `k_euler`."""
    text, unet, autoencoder, scale = networks
    betas = np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2
    products = np.cumprod(1 - betas)
    table = np.sqrt((1 - products) / products)
    sigmas = np.append(np.exp(np.interp(np.linspace(999, 0, steps), np.arange(1000), np.log(table))), 0)
    noise = torch.randn(1, 8, *shape, generator=torch.Generator().manual_seed(seed))
    x = noise.double() * (1 + sigmas[0] ** 2) ** 0.5
    context = text(tokenize(["", prompt]))[0]
    for sigma, following in zip(sigmas, sigmas[1:]):
        step = int(np.abs(np.log(table) - np.log(sigma)).argmin())
        scaled = (x / (sigma**2 + 1) ** 0.5).float()
        without, with_text = unet(torch.cat([scaled, scaled]), step, context).sample.double().chunk(2)
        output = without + guidance * (with_text - without)
        clean = x / (sigma**2 + 1) - output * sigma / (sigma**2 + 1) ** 0.5
        x = x + (x - clean) / sigma * (following - sigma)
    image = autoencoder.decode(x.float() / scale).sample[0]
    return ((image.clamp(-1, 1) + 1) * 127.5).round().permute(1, 2, 0).numpy().astype(np.uint8)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments.add_argument("--measure", type=int)
    arguments.add_argument("--threads", type=int, default=1)
    arguments = arguments.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.reference:
        networks, tokenize = reference()
        image = draw_as_we_do(networks, tokenize, PROMPT, SEED, STEPS, GUIDANCE)
        Image.fromarray(image).save(HERE / "reference.png", optimize=True)
        write_json(HERE / "reference.json", {"prompt": PROMPT, "seed": SEED, "steps": STEPS, "cfg_scale": GUIDANCE,
                                             "sampler": "k_euler", "schedule": "normal"})
    elif arguments.measure:
        networks, tokenize = reference()
        parts, all_three, images = train_network.measure(networks, tokenize, arguments.measure)
        print("background %.3f color %.3f shape %.3f" % tuple(parts), f"all {all_three:.3f}")
        train_network.sheet(images[:32], HERE / "look.png")
    else:
        write()


if __name__ == "__main__":
    main()
