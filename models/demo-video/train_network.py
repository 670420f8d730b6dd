"""Trains the text encoder and the denoising network on the latents of clips, once the autoencoder is trained. Goes on
from its last checkpoint; ends after so many minutes.

    python train_network.py --minutes 60
"""

import math
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import UniPCMultistepScheduler, WanTransformer3DModel
from PIL import Image
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

import scenes
import train_autoencoder
import vocabulary
from judge import judge
from threads import Threads

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, cosine, options, warm_up  # noqa: E402
from muon import adam, optimizers  # noqa: E402

CHECKPOINT = "checkpoints/network.pt"
CLIPS = "checkpoints/clips.pt"
CHANNELS = train_autoencoder.CHANNELS
FRAMES, SIDE = 1 + (scenes.FRAMES - 1) // 4, scenes.SIDE // 8
#: Rows of text that the network attends to, and how many of them training computes: the rest are zeros, all alike.
ROWS, LENGTH = 512, 16
BATCH = 32
SCHEDULER = {"num_train_timesteps": 1000, "prediction_type": "flow_prediction", "use_flow_sigmas": True,
             "flow_shift": 3.0, "solver_order": 2, "solver_type": "bh2"}
#: Clips that are kept; the oldest give way.
MOST_KEPT = 20_000


def networks(size):
    text = UMT5EncoderModel(UMT5Config(
        vocab_size=size, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, is_encoder_decoder=False, use_cache=False))
    network = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=4, attention_head_dim=24, in_channels=CHANNELS,
        out_channels=CHANNELS, text_dim=64, freq_dim=64, ffn_dim=288, num_layers=4, cross_attn_norm=True,
        qk_norm="rms_norm_across_heads", eps=1e-6, rope_max_seq_len=256)
    torch.nn.init.normal_(network.condition_embedder.time_proj.weight, std=0.02)
    torch.nn.init.zeros_(network.condition_embedder.time_proj.bias)
    torch.nn.init.zeros_(network.proj_out.weight)
    torch.nn.init.zeros_(network.proj_out.bias)
    torch.nn.init.zeros_(network.condition_embedder.text_embedder.linear_1.bias)
    torch.nn.init.zeros_(network.condition_embedder.text_embedder.linear_2.bias)
    side = torch.ones(96)
    side[::2] = -1
    look_around(network)
    for block in network.blocks:
        torch.nn.init.zeros_(block.scale_shift_table)
        block.scale_shift_table.data[:, [2, 5]] = 1
        for last in (block.attn1.to_out[0], block.attn2.to_out[0], block.ffn.net[2]):
            torch.nn.init.zeros_(last.weight)
            torch.nn.init.zeros_(last.bias)
        # Queries begin far from the key of the rows of zeros, which are many.
        block.attn2.to_q.bias.data = 0.6 * side
        block.attn2.to_k.bias.data = -0.2 * side
        for weight in (block.attn2.norm_q.weight, block.attn2.norm_k.weight):
            torch.nn.init.constant_(weight, 1.2)
    return text, network


@torch.no_grad()
def look_around(network):
    """Lets heads begin with a look at the neighbors on one side each: in two blocks to the right, left, below and above,
    in the third at frames after and before, at the same row and at the same column."""
    head, width = network.config.attention_head_dim, 2 * (network.config.attention_head_dim // 6)
    time, row, column = 0, head - 2 * width, head - width
    sides = [(column, 1.3), (column, -1.3), (row, 1.3), (row, -1.3)]
    for block, looks in zip(network.blocks, (sides, sides, [(time, 1.0), (time, -1.0), (row, 0.0), (column, 0.0)])):
        for at, (first, angle) in enumerate(looks):
            first += at * head
            block.attn1.to_q.bias[first : first + 2] = 3 * torch.tensor([math.cos(angle), math.sin(angle)])
            block.attn1.to_k.bias[first : first + 2] = torch.tensor([3.0, 0.0])


class Attention:
    """The same sums as diffusers' attention in fewer passes. Across to text, over some rows and one row of zeros that
    counts for all the others."""

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        across = encoder_hidden_states is not None
        context = encoder_hidden_states if across else hidden_states
        q, k, v = attn.norm_q(attn.to_q(hidden_states)), attn.norm_k(attn.to_k(context)), attn.to_v(context)
        q, k, v = (x.unflatten(2, (attn.heads, -1)) for x in (q, k, v))
        if rotary_emb is not None:
            turn = torch.complex(rotary_emb[0][..., 0::2].float(), rotary_emb[1][..., 1::2].float())
            turned = lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(3)
            q, k = turned(q), turned(k)
        count = None
        if across:
            count = torch.zeros(1, 1, 1, k.size(1))
            count[..., -1] = math.log(ROWS - k.size(1) + 1)
        x = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=count)
        return attn.to_out[0](x.transpose(1, 2).flatten(2))


def speed_up(network):
    for block in network.blocks:
        block.attn1.set_processor(Attention())
        block.attn2.set_processor(Attention())


def rows_of(text, tokens):
    """What the network attends to: a row for each token, zeros after them."""
    mask = tokens != 0
    rows = text(tokens, attention_mask=mask.long()).last_hidden_state * mask[..., None]
    return F.pad(rows, (0, 0, 0, 1))


class Roles(torch.nn.Module):
    """Says which color a row of the text means: that of the object, the one it turns into, or the background's. Only
    training asks: the rows of a color differ by its role before the network has learned to look for that."""

    def __init__(self, tokenizer):
        super().__init__()
        self.say = torch.nn.Linear(64, 3)
        ids = tokenizer.convert_tokens_to_ids
        self.colors = torch.tensor(ids(["▁" + name for name in scenes.COLORS]))
        self.turns = torch.tensor(ids(["▁turns", "▁becomes"]))
        self.on, self.article = ids(["▁on", "▁a"])

    def forward(self, rows, tokens):
        at = torch.isin(tokens[:, 2:], self.colors)
        one, two = tokens[:, 1:-1], tokens[:, :-2]
        is_ground = (one == self.on) | ((one == self.article) & (two == self.on))
        roles = torch.where(is_ground, 2, torch.isin(one, self.turns).long())
        # The first color stands after an article or a size, often at the second place.
        first = torch.isin(tokens[:, 1], self.colors)
        found = torch.cat([self.say(rows[:, 1 : tokens.size(1)][:, :1])[first], self.say(rows[:, 2 : tokens.size(1)])[at][:, None]])
        wanted = torch.cat([torch.zeros(int(first.sum()), dtype=torch.long), roles[at]])
        return F.cross_entropy(found.flatten(0, 1), wanted) if len(wanted) else found.sum() * 0


def tokens_of(tokenizer):
    def tokenize(captions):
        return tokenizer(captions, padding="max_length", max_length=LENGTH, truncation=True,
                         return_tensors="pt")["input_ids"]
    return tokenize


class Clips:
    """Latents of clips with their tokens. New ones join while the training runs."""

    def __init__(self, autoencoder, tokenize, rng):
        self.autoencoder, self.tokenize, self.rng = autoencoder, tokenize, rng
        self.latents, self.weights, self.tokens = [], [], []
        self.mean, self.std = None, None

    @torch.no_grad()
    def add(self, count):
        found = []
        while len(found) < count:
            one = scenes.clip(self.rng)
            found += [] if scenes.is_held_out(one) else [one]
        drawn = [scenes.draw(one) for one in found]
        x = torch.from_numpy(np.stack([image for image, _ in drawn])).float().permute(0, 4, 1, 2, 3) / 127.5 - 1
        mean, _ = train_autoencoder.encode(self.autoencoder, x.contiguous(memory_format=torch.channels_last_3d))
        near = F.max_pool2d(torch.from_numpy(np.stack([covered for _, covered in drawn])).float(), 8)
        near = torch.cat([near[:, :1], F.max_pool3d(near[:, None, 1:], (4, 1, 1))[:, 0]], 1)
        # The object counts for half, however small.
        share = near.mean((1, 2, 3), keepdim=True).clamp(0.05, 0.95)
        weights = (0.5 * near / share + 0.5 * (1 - near) / (1 - share)).clamp(max=4)
        self.latents.extend(mean.half().contiguous())
        self.weights.extend(weights[:, None])
        self.tokens.extend(self.tokenize([one.caption for one in found]))
        for kept in (self.latents, self.weights, self.tokens):
            del kept[:-MOST_KEPT]

    def measure(self):
        all_of = torch.stack(self.latents).float()
        # Channels that vary little say little: they are not made as large as the others.
        self.mean, self.std = all_of.mean((0, 2, 3, 4)), all_of.std((0, 2, 3, 4)).clamp(min=0.4)

    def batch(self, count):
        picks = [self.rng.randrange(len(self.latents)) for _ in range(count)]
        z = torch.stack([self.latents[at] for at in picks]).float()
        z = (z - self.mean.view(-1, 1, 1, 1)) / self.std.view(-1, 1, 1, 1)
        return z, torch.stack([self.weights[at] for at in picks]), torch.stack([self.tokens[at] for at in picks])


@torch.no_grad()
def draw(networks, captions, tokenize, steps=20, guidance=4.0, seed=0):
    """Clips as numbers from 0 to 255 (clips, frames, height, width, 3)."""
    text, network, autoencoder, mean, std = networks
    clips = []
    for at in range(0, len(captions), 32):
        some = captions[at : at + 32]
        scheduler = UniPCMultistepScheduler(**SCHEDULER)
        scheduler.set_timesteps(steps)
        z = torch.randn(len(some), CHANNELS, FRAMES, SIDE, SIDE, generator=torch.Generator().manual_seed(seed + at))
        rows = rows_of(text, tokenize([""] * len(some) + some))
        for step in scheduler.timesteps:
            without, with_text = network(torch.cat([z, z]), step.expand(2 * len(some)), rows).sample.chunk(2)
            z = scheduler.step(without + guidance * (with_text - without), step, z).prev_sample
        z = z * std.view(-1, 1, 1, 1) + mean.view(-1, 1, 1, 1)
        clips += [train_autoencoder.decode(autoencoder, part) for part in z.split(4)]
    return ((torch.cat(clips).clamp(-1, 1) + 1) * 127.5).permute(0, 2, 3, 4, 1).numpy()


def held_out(count):
    """Clips of combinations that training never sees, with plain wording, each change and shape equally often."""
    rng, found = random.Random(7), []
    while len(found) < count:
        change, shape = scenes.CHANGES[len(found) % len(scenes.CHANGES)], scenes.SHAPES[len(found) // 7 % 3]
        one = scenes.clip(rng, change=change, shape=shape, plain=True)
        found += [one] if scenes.is_held_out(one) else []
    return found


PARTS = ("background", "color", "last color", "shape", "change")


def measure(networks, tokenize, count, **options):
    """Shares that are right, of each part and of all together."""
    found = held_out(count)
    clips = draw(networks, [one.caption for one in found], tokenize, **options)
    wanted = [(one.background, one.color, one.last_color, one.shape, one.change) for one in found]
    right = np.array([[a == b for a, b in zip(judge(clip), one)] for clip, one in zip(clips, wanted)])
    return right, clips


def say(right):
    parts = ", ".join(f"{name} {share:.2f}" for name, share in zip(PARTS, right.mean(0)))
    changes = ", ".join(f"{change} {right[at :: len(scenes.CHANGES)].all(1).mean():.2f}"
                        for at, change in enumerate(scenes.CHANGES))
    return f"{parts}; all {right.all(1).mean():.3f} ({changes})"


def sheet(clips, path):
    """A row for each clip, every fourth frame."""
    rows = [np.concatenate(list(clip[::4]), 1) for clip in clips]
    half = (len(rows) + 1) // 2
    rows += [np.zeros_like(rows[0])] * (2 * half - len(rows))
    Image.fromarray(np.concatenate([np.concatenate(rows[:half], 0), np.concatenate(rows[half:], 0)], 1).astype(np.uint8)).save(path)


def main():
    parser = options(minutes=60.0, rate=0.01, threads=2)
    parser.add_argument("--first", type=int, default=800, help="clips before the first step")
    arguments = begin(parser, seed=2)
    threads = Threads(arguments.threads)
    os.makedirs("out/tokenizer", exist_ok=True)
    size = len(vocabulary.write("out/tokenizer"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained("out/tokenizer")
    tokenize, roles = tokens_of(tokenizer), Roles(tokenizer)
    autoencoder = train_autoencoder.network()
    autoencoder.load_state_dict(torch.load(train_autoencoder.CHECKPOINT)["average"])
    autoencoder.eval().requires_grad_(False)
    modules = text, network = networks(size)
    speed_up(network)
    names = ("embed", "shared", "proj_out", "scale_shift", "time_proj")
    # The text encoder's attention has no scale: large steps of equal size would leave it looking at one token forever.
    steppers = [*optimizers([network], arguments.rate, 1.5e-3, names), adam(text.parameters(), 1e-3)]
    training = Training(CHECKPOINT, modules, steppers, unit="samples", decay=0.997, helpers={"roles": roles},
                        constant=[torch.optim.AdamW(roles.parameters(), 1e-2)], values={"mean": None, "std": None})
    data = Clips(autoencoder, tokenize, random.Random(200 + training.count))
    data.mean, data.std = training.values["mean"], training.values["std"]
    began = time.time()
    if os.path.exists(CLIPS):
        data.latents, data.weights, data.tokens = (list(values) for values in torch.load(CLIPS))
    while len(data.latents) < arguments.first:
        data.add(16)
    if data.mean is None:
        data.measure()
        training.values = {"mean": data.mean, "std": data.std}
    print(f"first clips after {time.time() - began:.0f} s, deviations {data.std.min():.3f} to {data.std.max():.3f}", flush=True)
    faster = torch.compile(network)
    nothing = tokenize([""])[0]
    resumed, errors, role_error = training.took, [], None

    def report():
        return f"error {np.mean(errors[-50:]):.4f}, roles {role_error.item():.3f}, {threads.count} threads"

    def save_clips():
        torch.save([torch.stack(values) for values in (data.latents, data.weights, data.tokens)], CLIPS)

    def look():
        if os.path.exists(train_autoencoder.DECODER):
            autoencoder.load_state_dict(torch.load(train_autoencoder.DECODER)["average"])
        right, clips = measure((text, network, autoencoder, data.mean, data.std), tokenize, 28)
        print(say(right), flush=True)
        sheet(clips[:28], "look.png")

    for share in training.steps(minutes=arguments.minutes, report=report, evaluate=look, after_save=save_clips):
        threads.step()
        # A stretch that goes on from another one begins at most at 0.6 of the rate.
        part = min(1, (training.seconds() - resumed) / (60 * arguments.minutes - resumed))
        training.set_rates(warm_up(training.count, 1600) * cosine(part, 0.6 if resumed else 1))
        if training.count // BATCH % 3 == 0:
            data.add(1)
        z, weights, tokens = data.batch(BATCH)
        tokens = torch.where(torch.rand(BATCH, 1) < 0.1, nothing, tokens)
        # Shapes and movements are settled under much noise.
        sigmas = torch.rand(BATCH)
        sigmas = (3 * sigmas / (1 + 2 * sigmas)).view(-1, 1, 1, 1, 1)
        drawn = torch.randn_like(z)
        x = (1 - sigmas) * z + sigmas * drawn
        rows = rows_of(text, tokens)
        found = faster(x, sigmas.flatten() * 1000, rows).sample
        loss = (weights * (found - (drawn - z)).square()).mean()
        errors.append(loss.item())
        role_error = roles(rows, tokens)
        training.step(loss + 0.2 * role_error, BATCH, BATCH)


if __name__ == "__main__":
    main()
