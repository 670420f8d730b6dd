"""Trains the demo model: `python train.py --until 09:50` or `--steps N`, on the CPU with two processes or with `--device cuda`.

Every step draws fresh chats by (seed, step, rank), so nothing is stored but the checkpoint, and a run that is stopped goes on
from it. The learning rate falls to zero at the end, which is a step or a time of day.
"""

import argparse
import datetime
import json
import math
import os
import random
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from corpus import chats, evaluation
from encoding import Encoder, train_tokenizer
from network import Network, Shape, compile_layers

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, warm_up  # noqa: E402
from muon import adam, orthogonal  # noqa: E402

HERE = Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--until", help="a time of day, HH:MM, instead of a number of steps")
    parser.add_argument("--out", type=Path, default=HERE / "run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chats", type=int, default=24, help="chats a step and process")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--drills", type=float, nargs=2, default=[0.5, 0.15], help="the share of exercises at the beginning and at the end")
    parser.add_argument("--letters", type=float, default=0.2, help="what reading the letters of tokens counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--init", type=Path, help="start from another run's weights, with a new schedule")
    return parser.parse_args()


class Optimizer:
    """Muon for the matrices of the layers, AdamW for the rest. Each process orthogonalizes its share of the matrices."""

    def __init__(self, network, rate, rank, processes):
        named = list(network.named_parameters())
        self.matrices = [p for n, p in named if p.dim() == 2 and n != "embedding.weight"]
        self.rest = adam([p for n, p in named if p.dim() == 1 or n == "embedding.weight"], rate)
        # One rate for all.
        self.param_groups = self.rest.param_groups
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        self.rank, self.processes = rank, processes

    def zero_grad(self, set_to_none=True):
        self.rest.zero_grad(set_to_none)
        for p in self.matrices:
            p.grad = None

    @torch.no_grad()
    def step(self):
        rate = self.param_groups[0]["lr"]
        updates = [torch.zeros_like(p) for p in self.matrices]
        for i, (p, m) in enumerate(zip(self.matrices, self.momentum)):
            m.mul_(0.95).add_(p.grad, alpha=0.05)
            if i % self.processes == self.rank:
                updates[i] = orthogonal(p.grad.mul(0.05).add(m, alpha=0.95)[None])[0] * 0.2 * math.sqrt(max(p.shape))
        if self.processes > 1:
            updates = summed(updates)
        for p, update in zip(self.matrices, updates):
            p.mul_(1 - rate * 0.05).sub_(update, alpha=rate)
        self.rest.step()

    def state_dict(self):
        return {"momentum": self.momentum, "rest": self.rest.state_dict()}

    def load_state_dict(self, state):
        for mine, theirs in zip(self.momentum, state["momentum"]):
            mine.copy_(theirs)
        self.rest.load_state_dict(state["rest"])
        self.param_groups = self.rest.param_groups


def summed(tensors):
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    return [part.view_as(t) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


class Letters(torch.nn.Module):
    """Reads the letters of a token off its embedding, in training only: no chat says them as plainly."""

    def __init__(self, encoder, width, device):
        super().__init__()
        tokens, letters = encoder.letters()
        self.tokens, self.letters = torch.tensor(tokens, device=device), torch.tensor(letters, device=device)
        self.read = torch.nn.Linear(width, 27 * self.letters.shape[1], device=device)

    def loss(self, embedding):
        known = F.rms_norm(embedding[self.tokens], embedding.shape[-1:])
        return F.cross_entropy(self.read(known).view(-1, 27), self.letters.flatten())


def batch(encoder, rng, count, context, drills):
    """Chats one after the other: (ids, loss weights, lengths). `drills` is the share of exercises among them."""
    rows = [encoder.drill(rng) if rng.random() < drills else encoder.encode(*chats.chat(rng)) for _ in range(count)]
    ids = torch.tensor([i for row, _ in rows for i in row[:context]])
    weights = torch.tensor([w for _, row in rows for w in [0.0, *row[1:context]]])
    return ids, weights, [min(context, len(row)) for row, _ in rows]


def loss_of(network, ids, weights, lengths):
    """Each position guesses the next id where that has a weight; the first id of a chat has none, so nobody guesses it."""
    counted = weights[1:].nonzero().flatten()
    logits = F.linear(network.hidden(ids, lengths)[counted], network.embedding.weight)
    counts = weights[1:][counted]
    return (F.cross_entropy(logits, ids[1:][counted], reduction="none") * counts).sum() / counts.sum()


@torch.no_grad()
def guessed(network, encoder, prompts, device):
    """The share of held-out replies per skill that greedy decoding would write exactly as training does."""
    scores = {}
    for prompt in prompts:
        before, _ = encoder.encode(prompt["messages"] + [{"role": "assistant", "content": prompt["reply"]}], prompt["tools"])
        after = len(encoder.ids(prompt["reply"])) + 1
        ids = torch.tensor(before, device=device)
        best = network(ids[:-1], [len(ids) - 1])[-after:].argmax(-1)
        scores.setdefault(prompt["skill"], []).append(bool((best == ids[-after:]).all()))
    return {skill: round(100 * sum(hits) / len(hits)) for skill, hits in scores.items()}


def minutes_until(clock, spent):
    """From the start of the training to a time of day."""
    hour, minute = map(int, clock.split(":"))
    end = datetime.datetime.now().replace(hour=hour, minute=minute, second=0).timestamp()
    return (spent + max(1.0, end - time.time())) / 60


class ChatTraining(Training):
    """With the names of its checkpoint, in one process or several."""

    def __init__(self, path, network, optimizer, letters, args, rank):
        self.tokens, self.args, self.rank = 0, args, rank
        super().__init__(path, network, [optimizer], constant=[adam(letters.parameters(), 3e-3)])

    def state_dict(self):
        return {"network": self.modules[0].state_dict(), "optimizer": self.optimizers[0].state_dict(), "step": self.count,
                "spent": self.seconds(), "tokens": self.tokens}

    def load_state_dict(self, state):
        self.modules[0].load_state_dict(state["network"])
        self.optimizers[0].load_state_dict(state["optimizer"])
        self.count, self.took, self.tokens = state["step"], state["spent"], state["tokens"]

    def save(self):
        if self.rank == 0:
            super().save()

    def agreed(self, share):
        if self.args.processes == 1:
            return share
        share = torch.tensor([share], dtype=torch.float64)
        dist.broadcast(share, 0)
        return float(share)

    def sum_gradients(self):
        if self.args.processes > 1:
            for p, g in zip(self.weights, summed([p.grad for p in self.weights])):
                p.grad = g


def train(rank, args):
    torch.set_num_threads(1 if args.processes > 1 else 2)
    torch.manual_seed(args.seed)
    if args.compile:
        compile_layers()
    if args.processes > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        dist.init_process_group("gloo", rank=rank, world_size=args.processes, timeout=datetime.timedelta(hours=6))
    network = Network(Shape(layers=args.layers)).to(args.device)
    encoder = Encoder(HERE / "tokenizer.json")
    prompts = evaluation.prompts(count=10)
    letters = Letters(encoder, network.shape.hidden_size, args.device)
    saved = args.out / "checkpoint.pt"
    if args.init and not saved.exists():
        network.load_state_dict(torch.load(args.init, map_location=args.device)["network"])
    training = ChatTraining(saved, network, Optimizer(network, args.rate, rank, args.processes), letters, args, rank)
    log = open(args.out / "log.jsonl", "a") if rank == 0 else None

    def score():
        line = {"step": training.count, "tokens": training.tokens, "seconds": round(training.seconds()),
                "scores": guessed(network, encoder, prompts, args.device)}
        print(json.dumps(line), file=log, flush=True)

    until = None if args.until else args.steps
    minutes = minutes_until(args.until, training.took) if args.until else None
    mean, marked, tokens = 0.0, time.time(), training.tokens
    for progress in training.steps(minutes, until, evaluate=score if rank == 0 else None, evaluate_minutes=15):
        # Warm up, then fall to zero in a straight line.
        training.set_rates(warm_up(training.count, 60) * (1 - progress))
        rng = random.Random(f"train {args.seed} {training.count} {rank}")
        drills = args.drills[0] + (args.drills[1] - args.drills[0]) * min(1.0, progress / 0.8)
        ids, weights, lengths = batch(encoder, rng, args.chats, network.shape.context, drills)
        loss = loss_of(network, ids.to(args.device), weights.to(args.device), lengths)
        spelt = letters.loss(network.embedding.weight)
        mean += float(loss.detach())
        training.tokens += len(ids) * args.processes
        training.step((loss + args.letters * spelt) / args.processes)
        if rank == 0 and training.count % 20 == 0:
            now = time.time()
            line = {"step": training.count, "loss": round(mean / 20, 4), "letters": round(float(spelt.detach()), 3), "progress": round(progress, 4), "tokens": training.tokens, "tokens_per_second": round((training.tokens - tokens) / (now - marked))}
            print(json.dumps(line), file=log, flush=True)
            mean, marked, tokens = 0.0, now, training.tokens


def main():
    args = arguments()
    if not (HERE / "tokenizer.json").exists():
        train_tokenizer(HERE / "tokenizer.json")
    if args.processes > 1:
        torch.multiprocessing.spawn(train, (args,), args.processes)
    else:
        train(0, args)


if __name__ == "__main__":
    main()
