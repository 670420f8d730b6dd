"""Trains the text encoder and the denoising network on the latents of scenes, once the autoencoder is trained. Goes on
from its last checkpoint; ends after so many samples.

    python train_network.py --samples 120000
"""

import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DConditionModel
from PIL import Image
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

import scenes
import train_autoencoder
import vocabulary
from judge import judge

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, cosine, options, warm_up  # noqa: E402
from muon import optimizers  # noqa: E402

CHECKPOINT = "checkpoints/network.pt"
LENGTH = 77
BATCH = 32
#: Height and width in latents, and how often.
SHAPES = [((16, 16), 0.72), ((12, 16), 0.05), ((16, 12), 0.05), ((8, 8), 0.06), ((16, 24), 0.03), ((24, 16), 0.03),
          ((24, 24), 0.04), ((32, 32), 0.02)]
NOISE = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
         "prediction_type": "v_prediction"}
#: Scenes that are kept of each shape; the oldest give way.
MOST_KEPT = 12_000


def networks(size, end):
    text = CLIPTextModel(CLIPTextConfig(
        vocab_size=size, hidden_size=96, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=LENGTH, bos_token_id=end - 1, eos_token_id=end, pad_token_id=end,
        hidden_act="quick_gelu", projection_dim=96))
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=8, out_channels=8, down_block_types=["CrossAttnDownBlock2D"] * 2,
        up_block_types=["CrossAttnUpBlock2D"] * 2, block_out_channels=(64, 88), layers_per_block=1,
        cross_attention_dim=96, attention_head_dim=4, norm_num_groups=8)
    for name, weight in unet.named_parameters():
        if name.endswith(("conv2.weight", "conv2.bias", "proj_out.weight", "proj_out.bias", "conv_out.weight")):
            torch.nn.init.zeros_(weight)
    return text, unet.to(memory_format=torch.channels_last)


class Scenes:
    """Latents of scenes with their tokens, by shape. New ones join while the training runs."""

    def __init__(self, autoencoder, tokenize, rng):
        self.autoencoder, self.tokenize, self.rng = autoencoder, tokenize, rng
        self.kept = {shape: ([], []) for shape, _ in SHAPES}
        self.mean, self.scale = 0.0, 1.0

    @torch.no_grad()
    def add(self, shape, count):
        height, width = shape
        found = [scenes.scene(self.rng, width * 16, height * 16) for _ in range(count)]
        x = torch.from_numpy(np.stack([scenes.draw(one)[0] for one in found])).permute(0, 3, 1, 2) / 127.5 - 1
        x = x.contiguous(memory_format=torch.channels_last)
        latents, tokens = self.kept[shape]
        latents.extend(self.autoencoder.encode(x).latent_dist.mode())
        tokens.extend(self.tokenize([one.caption for one in found]))
        del latents[:-MOST_KEPT], tokens[:-MOST_KEPT]

    def batch(self, shape, count):
        latents, tokens = self.kept[shape]
        picks = [self.rng.randrange(len(latents)) for _ in range(count)]
        z = torch.stack([latents[at] for at in picks]) * self.scale
        return z, torch.stack([tokens[at] for at in picks])


def tokens_of(tokenizer):
    def tokenize(captions):
        return tokenizer(captions, padding="max_length", max_length=LENGTH, truncation=True,
                         return_tensors="pt")["input_ids"]
    return tokenize


@torch.no_grad()
def draw(networks, captions, tokenize, shape=(16, 16), steps=20, guidance=4.0, seed=0):
    text, unet, autoencoder, scale = networks
    scheduler = DDIMScheduler(**NOISE, clip_sample=False, set_alpha_to_one=False, steps_offset=1)
    scheduler.set_timesteps(steps)
    count = len(captions)
    z = torch.randn(count, 8, *shape, generator=torch.Generator().manual_seed(seed))
    context = text(torch.cat([tokenize([""] * count), tokenize(captions)]))[0]
    for step in scheduler.timesteps:
        without, with_text = unet(torch.cat([z, z]), step, context).sample.chunk(2)
        z = scheduler.step(without + guidance * (with_text - without), step, z).prev_sample
    images = [autoencoder.decode(part / scale).sample for part in z.split(4)]
    return ((torch.cat(images).clamp(-1, 1) + 1) * 127.5).permute(0, 2, 3, 1).numpy()


def measure(networks, tokenize, count):
    rng = random.Random(7)
    wanted = []
    for at in range(count):
        color, ground = rng.sample(list(scenes.COLORS), 2)
        wanted.append((ground, color, scenes.SHAPES[at % len(scenes.SHAPES)]))
    captions = [f"{scenes.article(color)} {shape} on {scenes.article(ground)} background" for ground, color, shape in wanted]
    images = draw(networks, captions, tokenize)
    right = np.array([[a == b for a, b in zip(judge(image), one)] for image, one in zip(images, wanted)])
    return right.mean(0), right.all(1).mean(), images


def sheet(images, path, columns=8):
    rows = [np.concatenate(images[at : at + columns], 1) for at in range(0, len(images), columns)]
    Image.fromarray(np.concatenate(rows, 0).astype(np.uint8)).save(path)


def noised(noise, z):
    """Latents under noise, its steps, and the velocity to predict."""
    # Shapes are settled under much noise.
    lowest = torch.where(torch.rand(len(z)) < 0.7, 350, 0)
    steps = (lowest + torch.rand(len(z)) * (1000 - lowest)).long()
    drawn = torch.randn_like(z)
    x = noise.add_noise(z, drawn, steps).contiguous(memory_format=torch.channels_last)
    return x, steps, noise.get_velocity(z, drawn, steps)


LOOKED_AT = [
    "a big red circle on a blue background", "a small yellow square at the left on a black background",
    "two green triangles on a white background", "three white circles on a purple background",
    "an orange cross at the bottom right on a blue background", "a red circle and a blue square on a white background",
    "a green triangle above a purple cross on a yellow background", "a black square",
]


def main():
    arguments = begin(options(samples=120_000, rate=0.01, threads=2), seed=2)
    os.makedirs("out/tokenizer", exist_ok=True)
    size = len(vocabulary.write("out/tokenizer"))
    tokenizer = CLIPTokenizer(vocab="out/tokenizer/vocab.json", merges="out/tokenizer/merges.txt")
    tokenize = tokens_of(tokenizer)
    autoencoder = train_autoencoder.network()
    autoencoder.load_state_dict(torch.load(train_autoencoder.CHECKPOINT)["average"])
    autoencoder.eval().requires_grad_(False)
    modules = text, unet = networks(size, tokenizer.eos_token_id)
    training = Training(CHECKPOINT, modules, optimizers(modules, arguments.rate, 1.5e-3), unit="samples", decay=0.998,
                        values={"scale": None})
    rng = random.Random(200 + training.count)
    data = Scenes(autoencoder, tokenize, rng)
    began = time.time()
    for shape, share in SHAPES:
        for _ in range(max(2, int(share * 400 / 16))):
            data.add(shape, 16 if shape[0] * shape[1] <= 400 else 4)
    data.scale = training.values["scale"] = training.values["scale"] or 1 / torch.stack(data.kept[(16, 16)][0]).std().item()
    print(f"scale {data.scale:.4f}, first scenes after {time.time() - began:.0f} s", flush=True)
    noise = DDPMScheduler(**NOISE)
    nothing = tokenize([""])[0]
    errors = []

    def look():
        four = (text, unet, autoencoder, data.scale)
        parts, all_three, images = measure(four, tokenize, 32)
        print("background %.2f color %.2f shape %.2f" % tuple(parts), f"all {all_three:.2f}", flush=True)
        sheet([*images[:16], *draw(four, LOOKED_AT, tokenize, seed=5)], "look.png")

    for share in training.steps(until=arguments.samples, report=lambda: f"error {np.mean(errors[-100:]):.4f}", evaluate=look):
        training.set_rates(warm_up(training.count, 3000) * cosine(share))
        shape = rng.choices(*zip(*SHAPES))[0]
        count = max(4, min(BATCH, BATCH * 256 // (shape[0] * shape[1])))
        data.add(shape, 4 if shape[0] * shape[1] <= 400 else 1)
        z, tokens = data.batch(shape, count)
        tokens = torch.where((torch.rand(count, 1) < 0.1), nothing, tokens)
        x, steps, wanted = noised(noise, z)
        loss = F.mse_loss(unet(x, steps, text(tokens)[0]).sample, wanted)
        errors.append(loss.item())
        training.step(loss, count, BATCH)


if __name__ == "__main__":
    main()
