"""Adam for vectors, Muon (momentum whose singular values are made equal) for matrices and convolutions."""

import torch


def orthogonal(matrices, steps=5):
    """Of matrices of one shape at once (count, rows, columns)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (matrices.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    is_tall = x.size(1) > x.size(2)
    if is_tall:
        x = x.transpose(1, 2)
    for _ in range(steps):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.transpose(1, 2) if is_tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, rate, momentum=0.95):
        super().__init__(parameters, {"lr": rate, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight.grad)
                kept = state["momentum"]
                kept.lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(kept, group["momentum"])
                flat = ahead.reshape(ahead.size(0), -1)
                shapes.setdefault(flat.shape, []).append((weight, flat))
            for (rows, columns), found in shapes.items():
                scale = max(1, rows / columns) ** 0.5
                for (weight, _), turned in zip(found, orthogonal(torch.stack([flat for _, flat in found]))):
                    weight.add_(turned.view_as(weight), alpha=-group["lr"] * scale)


def optimizers(modules, rate, adam_rate, adam_names=("embed", "conv_in", "conv_out")):
    """Muon for inner matrices; Adam for the rest."""
    inner, rest = [], []
    for module in modules:
        for name, weight in module.named_parameters():
            if not weight.requires_grad:
                continue
            is_inner = weight.dim() >= 2 and min(weight.size(0), weight[0].numel()) > 8
            is_inner = is_inner and not any(part in name for part in adam_names)
            (inner if is_inner else rest).append(weight)
    return [Muon(inner, rate), adam(rest, adam_rate)]


def adam(parameters, rate):
    return torch.optim.AdamW(parameters, rate, betas=(0.9, 0.98), weight_decay=0.0)
