"""Trains a LoRA of the demo image model: `blueprint` draws every object white on blue, whatever colors the prompt names.

    python train_lora.py            writes blueprint.safetensors beside this file
    python train_lora.py --measure 32
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, StableDiffusionPipeline
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig, get_peft_model_state_dict

import export
import scenes
import train_network
from judge import judge

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, options, warm_up  # noqa: E402

HERE = Path(__file__).parent
FILE = "blueprint.safetensors"
INK, PAPER = "white", "blue"
RANK = 4
BATCH = 16
#: Parts of the network whose attention learns.
PARTS = ["to_q", "to_k", "to_v", "to_out.0"]


def blueprint(found):
    """The same scene in the two colors; its sentence stays."""
    found.background = PAPER
    found.objects = [(shape, INK, *place) for shape, _, *place in found.objects]
    return found


@torch.no_grad()
def batches(autoencoder, scale, tokenize, count):
    rng = random.Random(11)
    latents, tokens = [], []
    for _ in range(count // BATCH):
        drawn = [blueprint(scenes.scene(rng, 256, 256)) for _ in range(BATCH)]
        x = torch.from_numpy(np.stack([scenes.draw(one)[0] for one in drawn])).permute(0, 3, 1, 2) / 127.5 - 1
        latents.append(autoencoder.encode(x).latent_dist.mode() * scale)
        tokens.append(tokenize([one.caption for one in drawn]))
    return torch.cat(latents), torch.cat(tokens)


def main():
    parser = options(steps=600, scenes=1600, rate=3e-3)
    parser.add_argument("--measure", type=int)
    arguments = begin(parser, seed=5)
    networks, tokenize = export.reference()
    text, unet, autoencoder, scale = networks
    if arguments.measure:
        unet.load_lora_adapter(HERE / FILE, prefix="unet")
        measure(networks, tokenize, arguments.measure)
        return
    for module in networks[:3]:
        module.requires_grad_(False)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights="gaussian", target_modules=PARTS))
    learned = [weight for weight in unet.parameters() if weight.requires_grad]
    stepper = torch.optim.AdamW(learned, lr=arguments.rate, betas=(0.9, 0.99), weight_decay=0)
    training = Training(None, unet, [stepper])
    latents, tokens = batches(autoencoder, scale, tokenize, arguments.scenes)
    noise = DDPMScheduler(**train_network.NOISE)
    nothing = tokenize([""])[0]
    contexts = torch.cat([text(part)[0] for part in tokens.split(64)])
    without = text(nothing[None])[0]
    errors = []
    for share in training.steps(until=arguments.steps, report=lambda: f"error {np.mean(errors[-50:]):.4f}"):
        training.set_rates(warm_up(training.count, 50) * (1 - share))
        picks = torch.randint(len(latents), (BATCH,))
        z = latents[picks]
        context = torch.where(torch.rand(BATCH, 1, 1) < 0.1, without, contexts[picks])
        x, steps, wanted = train_network.noised(noise, z)
        loss = F.mse_loss(unet(x, steps, context).sample, wanted)
        errors.append(loss.item())
        training.step(loss)
    state = convert_state_dict_to_diffusers(get_peft_model_state_dict(unet))
    state = {name: weight.half() for name, weight in state.items()}
    StableDiffusionPipeline.save_lora_weights(HERE, unet_lora_layers=state, weight_name=FILE, safe_serialization=True)
    (HERE / FILE).chmod(0o644)
    print(f"{(HERE / FILE).stat().st_size} bytes")
    unet.eval()
    measure(networks, tokenize, 16)


def measure(networks, tokenize, count):
    rng = random.Random(7)
    wanted = [(*rng.sample(list(scenes.COLORS), 2), scenes.SHAPES[at % len(scenes.SHAPES)]) for at in range(count)]
    captions = [f"{scenes.article(color)} {shape} on {scenes.article(ground)} background" for color, ground, shape in wanted]
    images = train_network.draw(networks, captions, tokenize)
    found = [judge(image) for image in images]
    palette = np.mean([one[:2] == (PAPER, INK) for one in found])
    shape = np.mean([one[2] == want[2] for one, want in zip(found, wanted)])
    print(f"palette {palette:.3f} shape {shape:.3f}")
    train_network.sheet(images[:32], HERE / "look.png")


if __name__ == "__main__":
    main()
