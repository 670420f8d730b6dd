"""Trains the network on fresh chats about fresh pictures. Goes on from its last checkpoint; ends after so many minutes.

    python train_network.py --minutes 45
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import network
import pictures
import questions
import vocabulary
from vocabulary import ASSISTANT, END, IMAGE, PAD

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, linear, options, warm_up  # noqa: E402
from muon import adam, optimizers  # noqa: E402

HERE = Path(__file__).resolve().parent
CHECKPOINT = "checkpoints/network.pt"
BATCH = 32
MOST = 160


def batch(encoder, rng, noise, count):
    """Chats whose pictures have one size: ids, which ids are guessed, positions, pictures."""
    grid = pictures.GRIDS[0] if rng.random() < 0.75 else rng.choice(pictures.GRIDS[1:])
    made = []
    while len(made) < count:
        messages, image, found = questions.chat(rng, noise, grid)
        ids, is_answer = encoder.chat(messages, grid[0] * grid[1])
        if len(ids) <= MOST:
            made.append((ids, is_answer, network.positions(ids, encoder.ids[IMAGE], grid), image,
                         pictures.seen_by(found, grid)))
    length = max(len(ids) for ids, *_ in made)
    ids = torch.full((count, length), encoder.ids[PAD])
    guessed, places = torch.zeros(count, length, dtype=torch.bool), torch.zeros(3, count, length)
    for at, (some, is_answer, some_places, _, _) in enumerate(made):
        ids[at, : len(some)] = torch.tensor(some)
        guessed[at, : len(some)] = torch.tensor(is_answer)
        places[:, at, : len(some)] = torch.tensor(some_places)
    shown = [(image, *known) for *_, image, known in made if image is not None]
    return ids, guessed, places, [torch.from_numpy(np.stack(some)) for some in zip(*shown)]


class Labels(torch.nn.Module):
    """Reads what is known of a scene off the tower, in training only: the shape and the color of each token that sees an object, and the
    pixels of each patch that are covered."""

    def __init__(self):
        super().__init__()
        self.shape = torch.nn.Linear(network.WIDTH, len(pictures.scenes.SHAPES))
        self.color = torch.nn.Linear(network.WIDTH, len(pictures.scenes.COLORS))
        self.covered = torch.nn.Linear(network.LOOK_WIDTH, network.PATCH**2)

    def loss(self, seen, labels, covered):
        rows, patches = (F.rms_norm(x, x.shape[-1:]) for x in seen)
        heads = zip((self.shape, self.color), labels.unbind(1))
        known = [F.cross_entropy(head(rows).flatten(0, 1), wanted.flatten(), ignore_index=-1) for head, wanted in heads]
        return known[0], known[1], F.binary_cross_entropy_with_logits(self.covered(patches), covered)


class Scenes:
    """Pictures without chats, and what is known of them. Each is shown several times: drawing costs as much as learning from it."""

    def __init__(self, rng, noise, most):
        self.rng, self.noise, self.most, self.pool = rng, noise, most, []

    def renew(self, count):
        grid = pictures.GRIDS[0]
        for _ in range(count):
            found = pictures.scene(self.rng, grid)
            one = pictures.drawn(self.noise, found), *pictures.seen_by(found, grid)
            if len(self.pool) < self.most:
                self.pool.append(one)
            else:
                self.pool[self.rng.randrange(self.most)] = one

    def batch(self, count):
        return [torch.from_numpy(np.stack(some)) for some in zip(*self.rng.sample(self.pool, count))]


def loss_of(model, helper, encoder, made):
    """That of the answers, and those of what is known of the pictures."""
    ids, guessed, places, (images, labels, covered) = made
    seen = network.look(model, images)
    rows = seen[0]
    states = network.decode(model, ids, places, rows, encoder.ids[IMAGE])[:, :-1][guessed[:, 1:]]
    scores = states @ model.model.language_model.embed_tokens.weight.T
    return F.cross_entropy(scores, ids[:, 1:][guessed[:, 1:]]), *helper.loss(seen, labels, covered)


@torch.no_grad()
def answer(model, encoder, chats, most=40):
    """Greedy answers of chats that end with a question: (messages, image), pictures of one size."""
    ended, mark = encoder.ids[END], encoder.ids[IMAGE]
    found = []
    for messages, image in chats:
        grid = (image.shape[0] // 16, image.shape[1] // 16) if image is not None else (1, 1)
        ids = [*encoder.chat(messages, grid[0] * grid[1])[0], encoder.ids[ASSISTANT]]
        rows = None if image is None else network.look(model, torch.from_numpy(image)[None])[0]
        start = len(ids)
        while len(ids) - start < most:
            places = torch.tensor(network.positions(ids, mark, grid))[:, None]
            state = network.decode(model, torch.tensor([ids]), places, rows, mark)[0, -1]
            ids.append(int((state @ model.model.language_model.embed_tokens.weight.T).argmax()))
            if ids[-1] == ended:
                break
        found.append(encoder.decode(ids[start:]))
    return found


def held_out(count, seed=99):
    """Scenes with one question each: (kind of question, messages, image, answer)."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    found = []
    while len(found) < count:
        scene = pictures.scene(rng, (6, 6))
        if len(scene.objects) > 1:
            continue
        image, seen = pictures.drawn(noise, scene), questions.Seen(scene)
        kinds = [("what", "What is in this picture?", seen.describe()), ("color", f"What color is the {seen.shapes[0]}?", seen.color()),
                 ("shape", "What shape is it?", seen.shape()), ("place", "Where is it?", seen.where()),
                 ("background", "What color is the background?", f"The background is {seen.background}.")]
        kind, question, wanted = kinds[len(found) % len(kinds)]
        found.append((kind, [("user", [questions.IMAGE, question])], image, wanted))
    return found


def judge(model, encoder, held):
    """The share of right answers by kind, and some wrong ones."""
    found = answer(model, encoder, [(messages, image) for _, messages, image, _ in held])
    shares, wrong = {}, []
    for (kind, _, _, wanted), text in zip(held, found):
        shares.setdefault(kind, []).append(text == wanted)
        if text != wanted:
            wrong.append(f"{wanted} -> {text}")
    return {kind: round(float(np.mean(right)), 3) for kind, right in shares.items()}, wrong


def main():
    arguments = begin(options(minutes=45.0, rate=0.02, adam_rate=3e-3, batch=BATCH, alone=0.9, pool=3000), seed=3)
    encoder = vocabulary.Encoder(HERE)
    model = network.network(encoder)
    helper = Labels()
    steppers = [*optimizers([model], arguments.rate, arguments.adam_rate, ("embed",)), adam(helper.parameters(), arguments.adam_rate)]
    training = Training(HERE / CHECKPOINT, model, steppers, decay=0.995, helpers={"labels": helper})
    rng, noise = random.Random(100 + training.count), np.random.default_rng(100 + training.count)
    scenes = Scenes(rng, noise, arguments.pool)
    scenes.renew(arguments.pool // 2)
    held = held_out(100)
    errors = []

    def look():
        shares, wrong = judge(model, encoder, held)
        print(f"held out: {shares};", "; ".join(wrong[:4]), flush=True)

    report = lambda: "errors " + " ".join(f"{error:.4f}" for error in np.nanmean(errors[-100:], 0))
    for share in training.steps(minutes=arguments.minutes, report=report, evaluate=look, evaluate_minutes=4):
        training.set_rates(warm_up(training.count, 60) * linear(share, 1.5))
        # The tower first: most steps of the first half are about pictures alone.
        if rng.random() < arguments.alone * min(1, max(0, 4 - 6 * share)):
            scenes.renew(4)
            images, labels, covered = scenes.batch(arguments.batch)
            parts = torch.tensor(float("nan")), *helper.loss(network.look(model, images), labels, covered)
        else:
            parts = loss_of(model, helper, encoder, batch(encoder, rng, noise, arguments.batch))
        errors.append([part.item() for part in parts])
        training.step(sum(part for part in parts if not part.isnan()))


if __name__ == "__main__":
    main()
