"""Makes model.safetensors and config.json of this folder: a safety checker at tiny size that flags pictures with something
purple in them. Purple stands for whatever a real checker looks for; nothing else was shown to it.

Needs torch, transformers, diffusers, safetensors and numpy from PyPI; takes a minute on two cores.
"""

import argparse
import random
import sys
from pathlib import Path

import numpy
import torch
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
from transformers import CLIPConfig, CLIPImageProcessor

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "demo-image"))
import scenes  # noqa: E402

SIDE = 64
VISION = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": SIDE,
    "patch_size": 8, "hidden_act": "quick_gelu",
}
PROJECTION = 16
THRESHOLD = .25
#: No cosine is beyond it: the other concepts never flag.
NEVER = 1.0
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
DEVIATION = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]


def gradient(rng):
    """As the pipeline of the tests draws them: red to the right, green downwards, blue everywhere."""
    is_blue = rng.random() < .5
    blue = rng.randint(180, 255) if is_blue else rng.randint(0, 80)
    y, x = numpy.mgrid[:SIDE, :SIDE] * (255 / (SIDE - 1))
    # The corner of red and blue without green is purple.
    return numpy.stack([x, y, numpy.full_like(x, blue)], -1), is_blue


def picture(rng, noise):
    if rng.random() < .1:
        return gradient(rng)
    found = scenes.scene(rng, SIDE, SIDE)
    levels, _ = scenes.draw(found)
    # What a network draws is softer, and its colors are near those asked for.
    levels = levels + noise.normal(0, rng.choice([0, 4, 10]), levels.shape) + noise.normal(0, 8, 3)
    if rng.random() < .5:
        levels = (levels + numpy.roll(levels, 1, 0) + numpy.roll(levels, 1, 1) + numpy.roll(levels, 1, (0, 1))) / 4
    colors = [found.background] + [color for _, color, *_ in found.objects]
    return levels, "purple" in colors


def batch(rng, noise, count):
    images, labels = [], []
    while len(images) < count:
        levels, is_flagged = picture(rng, noise)
        # Half of them are flagged.
        if is_flagged == (len(images) % 2 == 0):
            images.append(levels.clip(0, 255).round())
            labels.append(float(is_flagged))
    pixels = torch.from_numpy(numpy.stack(images)).float().permute(0, 3, 1, 2) / 255
    return (pixels - MEAN) / DEVIATION, torch.tensor(labels)


def similarity(model, pixels):
    embeddings = model.visual_projection(model.vision_model(pixels)[1])
    return torch.nn.functional.cosine_similarity(embeddings, model.concept_embeds[:1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--measure", type=int, default=1000, help="pictures to measure with")
    options = parser.parse_args()
    torch.manual_seed(7)
    rng, noise = random.Random(7), numpy.random.default_rng(7)
    model = StableDiffusionSafetyChecker(CLIPConfig(vision_config=VISION, projection_dim=PROJECTION))
    model.concept_embeds.data = torch.randn_like(model.concept_embeds)
    model.special_care_embeds.data = torch.randn_like(model.special_care_embeds)
    model.concept_embeds_weights.data.fill_(NEVER)
    model.concept_embeds_weights.data[0] = THRESHOLD
    model.special_care_embeds_weights.data.fill_(NEVER)
    trained = [*model.vision_model.parameters(), *model.visual_projection.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=2e-3, weight_decay=.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, options.steps)
    for step in range(options.steps):
        pixels, labels = batch(rng, noise, 48)
        logits = 12 * (similarity(model, pixels) - THRESHOLD)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            right = ((logits > 0) == (labels > 0)).float().mean()
            print(step + 1, f"{loss.item():.4f}", f"{right.item():.3f}", flush=True)
    model = model.half().float().eval()
    with torch.no_grad():
        pixels, labels = batch(random.Random(99), numpy.random.default_rng(99), options.measure)
        found = similarity(model, pixels) > THRESHOLD
        right = found == (labels > 0)
        print(f"right: {right.float().mean():.4f}; flagged of purple: {found[labels > 0].float().mean():.4f}; of others: {found[labels == 0].float().mean():.4f}")
    model.half().save_pretrained(HERE)
    CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}).save_pretrained(HERE)
    for file in [*HERE.glob("*.safetensors"), *HERE.glob("*.json")]:
        file.chmod(0o644)


if __name__ == "__main__":
    main()
