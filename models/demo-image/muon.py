"""Adam for vectors, Muon (momentum whose singular values are made equal) for matrices and convolutions."""

import torch


def orthogonal(matrix, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    is_tall = x.size(0) > x.size(1)
    if is_tall:
        x = x.T
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if is_tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, rate, momentum=0.95):
        super().__init__(parameters, {"lr": rate, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
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
                scale = max(1, flat.size(0) / flat.size(1)) ** 0.5
                weight.add_(orthogonal(flat).view_as(weight), alpha=-group["lr"] * scale)


def optimizers(modules, rate, adam_rate, adam_names=("embed", "conv_in", "conv_out")):
    """Muon for inner matrices; Adam for the rest."""
    inner, rest = [], []
    for module in modules:
        for name, weight in module.named_parameters():
            is_inner = weight.dim() >= 2 and min(weight.size(0), weight[0].numel()) > 8
            is_inner = is_inner and not any(part in name for part in adam_names)
            (inner if is_inner else rest).append(weight)
    return [Muon(inner, rate), torch.optim.AdamW(rest, adam_rate, betas=(0.9, 0.98), weight_decay=0.0)]
