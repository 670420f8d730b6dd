"""The loop of a training: the steps of its optimizers under a schedule, moving averages of the weights, the log, and a checkpoint from
which it resumes.

    training = Training("checkpoints/network.pt", model, optimizers([model], 0.02, 2e-3), decay=0.99)
    for share in training.steps(minutes=30, report=lambda: f"error {np.mean(errors[-50:]):.4f}"):
        training.set_rates(warm_up(training.count, 60) * linear(share, 1.5))
        training.step(loss_of(model))
"""

import argparse
import contextlib
import math
import os
import time

import torch


def options(threads=1, **defaults):
    """A parser of options with these defaults."""
    parser = argparse.ArgumentParser()
    for name, value in {**defaults, "threads": int(os.environ.get("OMP_NUM_THREADS", threads))}.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return parser


def begin(parser, seed):
    """The options, once threads and seed are set."""
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(seed)
    return arguments


def warm_up(count, length):
    return min(1, (count + 1) / length)


def linear(share, slope):
    """Falls in a straight line at the end."""
    return min(1, 0.01 + slope * (1 - share))


def cosine(share, height=0.98):
    return 0.02 + height * 0.5 * (1 + math.cos(math.pi * share))


class Timer:
    def __init__(self, seconds):
        self.seconds, self.last = seconds, time.time()

    def is_due(self):
        now = time.time()
        if now - self.last <= self.seconds:
            return False
        self.last = now
        return True


class Training:
    """Modules with their optimizers, and how far the training is. `modules` is one module or a list.

    The schedule is a share of the rates that the optimizers have here; `constant` optimizers have no schedule and are not saved.
    `helpers` are modules that are saved by their names and dropped after training; `values` are saved as they are. With `decay` there
    are moving averages of the weights; without a path there is no checkpoint."""

    def __init__(self, path, modules, optimizers, unit="steps", clip=1.0, decay=None, constant=(), helpers=None, values=None):
        self.path, self.unit, self.clip, self.decay = path, unit, clip, decay
        self.is_one = isinstance(modules, torch.nn.Module)
        self.modules = [modules] if self.is_one else modules
        self.optimizers, self.constant, self.helpers, self.values = optimizers, constant, helpers or {}, values or {}
        self.rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self.averages = self.copies() if decay else []
        # The name of the count in a checkpoint.
        self.counter = "steps" if unit == "steps" else "seen"
        self.count, self.took, self.began = 0, 0.0, time.time()
        self.weights = [weight for module in self.modules for weight in module.parameters()]
        print(sum(weight.numel() for weight in self.weights if weight.requires_grad), "parameters", flush=True)
        if path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.exists(path):
                self.load_state_dict(torch.load(path, map_location=self.weights[0].device))

    def state_dict(self):
        modules, averages = [module.state_dict() for module in self.modules], self.averages
        state = {"model": modules[0], "average": averages[0]} if self.is_one else {"modules": modules, "average": averages}
        state |= {name: helper.state_dict() for name, helper in self.helpers.items()}
        return state | self.values | {self.counter: self.count, "took": self.seconds(),
                                      "steppers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state):
        for module, kept in zip(self.modules, [state["model"]] if self.is_one else state["modules"]):
            module.load_state_dict(kept)
        self.averages = [state["average"]] if self.is_one else state["average"]
        for optimizer, kept in zip(self.optimizers, state["steppers"]):
            optimizer.load_state_dict(kept)
        for name, helper in self.helpers.items():
            helper.load_state_dict(state.get(name, helper.state_dict()))
        self.values = {name: state[name] for name in self.values}
        self.count, self.took = state[self.counter], state["took"]

    def save(self):
        if self.path:
            torch.save(self.state_dict(), f"{self.path}.new")
            os.replace(f"{self.path}.new", self.path)

    def seconds(self):
        """How long the training took, with all stretches before this one."""
        return self.took + time.time() - self.began

    def steps(self, minutes=None, until=None, report=None, evaluate=None, evaluate_minutes=10, after_save=None):
        """Yields before each step the share that is done of the minutes, or of the count at which the training ends.

        Writes what `report` returns to the log. `evaluate` sees the averages, if there are any."""
        self.began = time.time()
        log, checkpoint, look = Timer(20), Timer(60), Timer(60 * evaluate_minutes)
        logged_at, logged = log.last, self.count
        is_last = until is not None and self.count >= until
        while not is_last:
            share = self.agreed(min(1, self.seconds() / 60 / minutes) if until is None else self.count / until)
            yield share
            is_last = share >= 1 if until is None else self.count >= until
            if report and log.is_due():
                speed = (self.count - logged) / (log.last - logged_at)
                print(f"{self.count} {self.unit}, {self.seconds():.0f} s, {report()}, {speed:.1f}/s", flush=True)
                logged_at, logged = log.last, self.count
            if checkpoint.is_due() or is_last:
                self.save()
                if after_save:
                    after_save()
            if evaluate and (look.is_due() or is_last):
                with self.averaged():
                    evaluate()

    def agreed(self, share):
        """The share that all processes of a training go by."""
        return share

    def set_rates(self, pace):
        for optimizer, rates in zip(self.optimizers, self.rates):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * pace

    def step(self, loss, count=1, batch=1):
        """One step by `count` samples. The averages forget sooner during the first batches."""
        optimizers = [*self.optimizers, *self.constant]
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.sum_gradients()
        torch.nn.utils.clip_grad_norm_(self.weights, self.clip)
        for optimizer in optimizers:
            optimizer.step()
        self.count += count
        self.average((1 + self.count / batch) / (10 + self.count / batch))

    def sum_gradients(self):
        """Over all processes of a training."""

    @torch.no_grad()
    def average(self, share):
        for module, average in zip(self.modules, self.averages):
            for name, value in module.state_dict().items():
                average[name].lerp_(value, 1 - min(self.decay, share)) if value.is_floating_point() else average[name].copy_(value)

    @contextlib.contextmanager
    def averaged(self):
        """The modules have their averages meanwhile."""
        current = self.copies()
        for module, average in zip(self.modules, self.averages):
            module.load_state_dict(average)
        yield
        for module, state in zip(self.modules, current):
            module.load_state_dict(state)

    def copies(self):
        return [{name: value.detach().clone() for name, value in module.state_dict().items()} for module in self.modules]
