"""Asks the model about pictures and says how many answers are right.

    python judge.py N                       held-out scenes with soft edges, spots and other colors, by transformers and the model folder
    python judge.py N --served URL --key K  pictures that demo-image draws, both by a running `worker up`; a picture without the object
                                            that was asked for is left out
"""

import argparse
import base64
import importlib.util
import io
import json
import random
import urllib.request
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import network
import pictures
import questions
import vocabulary
from pictures import scenes

HERE = Path(__file__).resolve().parent


def looks_like(image):
    """Background, color and shape, as the judge of demo-image sees them: its module has the name of this one."""
    spec = importlib.util.spec_from_file_location("judge_of_images", HERE.parent / "demo-image" / "judge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.judge(image)


class Viewer:
    """The model folder, in f32."""

    def __init__(self):
        from transformers import Qwen2VLImageProcessor, Qwen3VLForConditionalGeneration

        self.model = Qwen3VLForConditionalGeneration.from_pretrained(HERE, dtype=torch.float32).eval()
        self.processor = Qwen2VLImageProcessor.from_pretrained(HERE)
        self.encoder = vocabulary.Encoder(HERE)

    @torch.no_grad()
    def ids(self, image, question):
        """Tokens of a prompt about a picture (rows, columns, 3) and of its answer."""
        made = self.processor([torch.from_numpy(image).permute(2, 0, 1)], return_tensors="pt")
        tokens = int(made["image_grid_thw"].prod()) // network.MERGE**2
        prompt = self.encoder.chat([("user", [questions.IMAGE, question])], tokens)[0] + [self.encoder.ids[vocabulary.ASSISTANT]]
        ids = torch.tensor([prompt])
        types = (ids == self.encoder.ids[vocabulary.IMAGE]).int()
        pixels = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}
        found = self.model.generate(ids, mm_token_type_ids=types, **pixels, max_new_tokens=48, do_sample=False)
        return prompt, found[0, len(prompt):].tolist()

    def answer(self, image, question):
        return self.encoder.decode(self.ids(image, question)[1])


def asked(seen):
    """Questions about a scene of one object, with the words that their answers have."""
    return [("shape", "What is in this picture?", [seen.shapes[0]]), ("color", "What color is it?", [f"is {seen.colors[0]}."]),
            ("color of it", f"What color is the {seen.shapes[0]}?", [f"is {seen.colors[0]}."]),
            ("what", "What is in this picture?", [f"{seen.colors[0]} {seen.shapes[0]}", f"{seen.background} background"]),
            ("place", "Where is it?", [seen.place(0) + "."]), ("place of it", f"Where is the {seen.shapes[0]}?", [seen.place(0) + "."])]


class Served:
    """A running `worker up`."""

    def __init__(self, url, key):
        self.url, self.key = url.rstrip("/"), key

    def post(self, path, body):
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)) as reply:
            return json.load(reply)

    def draw(self, prompt, seed):
        body = {"model": "demo-image", "prompt": prompt, "seed": seed, "response_format": "b64_json", "output_format": "png"}
        image = base64.b64decode(self.post("/v1/images/generations", body)["data"][0]["b64_json"])
        return np.array(Image.open(io.BytesIO(image)).convert("RGB"))

    def answer(self, image, question):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        body = {"model": "demo-vision", "image": base64.b64encode(file.getvalue()).decode(), "prompt": question, "temperature": 0}
        return self.post("/v1/images/describe", body)["text"]


def drawn(served, count, seed):
    """Pictures of demo-image with the scenes that they were asked for."""
    rng, left_out = random.Random(seed), 0
    while count:
        shape, (color, background) = rng.choice(scenes.SHAPES), rng.sample(list(scenes.COLORS), 2)
        place, size = rng.choice(list(scenes.PLACES)), rng.choice(["", "", "small"])
        name = scenes.article(" ".join(word for word in (size, color, shape) if word))
        image = served.draw(f"{name} at the {place} on {scenes.article(background)} background", rng.randrange(1 << 30))
        if looks_like(image.astype(np.float32)) != (background, color, shape):
            left_out += 1
            continue
        count -= 1
        yield image, scene_of(image, shape, color, background)
    print(f"left out: {left_out}")


def scene_of(image, shape, color, background):
    """Where the object of a picture really is."""
    levels = image.astype(np.float32)
    gap = lambda name: ((levels - np.float32(scenes.COLORS[name])) ** 2).sum(-1)
    rows, columns = np.where(gap(color) < gap(background))
    low, high = (lambda at: np.quantile(at, 0.01)), (lambda at: np.quantile(at, 0.99))
    radius = max(high(rows) - low(rows), high(columns) - low(columns)) / 2
    middle = (low(columns) + high(columns)) / 2, (low(rows) + high(rows)) / 2
    return scenes.Scene(image.shape[1], image.shape[0], background, [(shape, color, *middle, radius)])


def rendered(count, seed):
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    while count:
        found = pictures.scene(rng, (16, 16))
        if len(found.objects) == 1:
            count -= 1
            yield pictures.drawn(noise, found), found


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("count", type=int)
    arguments.add_argument("--served")
    arguments.add_argument("--key")
    arguments.add_argument("--seed", type=int, default=7)
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    viewer, right = Served(arguments.served, arguments.key) if arguments.served else Viewer(), {}
    shown = drawn(viewer, arguments.count, arguments.seed) if arguments.served else rendered(arguments.count, arguments.seed)
    for image, found in shown:
        all_right = True
        for kind, question, words in asked(questions.Seen(found)):
            answer = viewer.answer(image, question)
            is_right = all(word in answer for word in words)
            all_right &= is_right
            right.setdefault(kind, []).append(is_right)
            if not is_right:
                print(f"{kind}: {questions.Seen(found).describe()} {question} -> {answer}", flush=True)
        right.setdefault("all", []).append(all_right)
    print({kind: f"{100 * np.mean(some):.1f} %" for kind, some in right.items()})


if __name__ == "__main__":
    main()
