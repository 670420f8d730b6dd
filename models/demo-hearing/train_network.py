"""Trains the small Whisper. Goes on from its last checkpoint; ends after so many minutes.

    python train_network.py --minutes 30

Two helpers are dropped after training: a layer says of each state of the encoder which word it is in, and heads of the decoder's
attention are told where to look. espeak-ng gives the times of words, so both are known.
"""

import math
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import WhisperConfig, WhisperForConditionalGeneration

import sounds
import vocabulary
import words
from vocabulary import END, FIRST_TIME, IDS, SILENCE, START

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, linear, options, warm_up  # noqa: E402
from muon import adam, optimizers  # noqa: E402

CHECKPOINT = "checkpoints/network.pt"
BATCH = 24
CONTEXT = 64
WIDTH, HEADS, FEED, LAYERS = 96, 4, 256, 2
# Heads that are told where to look: those of the first layer at the last word written, those of the last at the next.
GUIDED = 2


def network():
    config = WhisperConfig(
        vocab_size=len(vocabulary.NAMES), num_mel_bins=sounds.BANDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=FEED, decoder_ffn_dim=FEED,
        max_source_positions=sounds.STATES, max_target_positions=CONTEXT, init_std=0.1, dropout=0.0,
        pad_token_id=IDS[END], bos_token_id=IDS[END], eos_token_id=IDS[END], decoder_start_token_id=IDS[START],
        suppress_tokens=[], begin_suppress_tokens=[IDS[END]], attn_implementation="eager")
    model = WhisperForConditionalGeneration(config)
    for half in (model.model.encoder, model.model.decoder):
        for layer in half.layers:
            for last in (layer.self_attn.out_proj, layer.fc2):
                last.weight.data.mul_(0.5)
    return model


def attend(part, x, keys, values, mask=None):
    """The attended, and the weights."""
    split = lambda y: y.view(*y.shape[:2], HEADS, -1).transpose(1, 2)
    scores = split(part.q_proj(x)) @ split(keys).transpose(2, 3) / math.sqrt(WIDTH / HEADS)
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    return part.out_proj((weights @ split(values)).transpose(1, 2).flatten(2)), weights


def encode(model, features):
    """States of features (windows, frames, bands), which may be shorter than a window."""
    encoder = model.model.encoder
    x = F.gelu(encoder.conv1(features.transpose(1, 2)))
    x = F.gelu(encoder.conv2(x)).transpose(1, 2)
    x = x + encoder.embed_positions.weight[: x.size(1)]
    for layer in encoder.layers:
        normed = layer.self_attn_layer_norm(x)
        part = layer.self_attn
        x = x + attend(part, normed, part.k_proj(normed), part.v_proj(normed))[0]
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    return encoder.layer_norm(x)


def decode(model, tokens, states):
    """Scores of each next token, and of each layer the weights of its attention to the sound."""
    decoder = model.model.decoder
    count = tokens.size(1)
    x = decoder.embed_tokens(tokens) + decoder.embed_positions.weight[:count]
    mask = torch.full((count, count), -math.inf).triu(1)
    looks = []
    for layer in decoder.layers:
        normed = layer.self_attn_layer_norm(x)
        part = layer.self_attn
        x = x + attend(part, normed, part.k_proj(normed), part.v_proj(normed), mask)[0]
        part = layer.encoder_attn
        attended, weights = attend(part, layer.encoder_attn_layer_norm(x), part.k_proj(states), part.v_proj(states))
        x = x + attended
        looks.append(weights)
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    return decoder.layer_norm(x) @ decoder.embed_tokens.weight.T, looks


def batch(utterances, features, rng):
    kind = rng.random()
    is_whole = kind < 0.4
    # Short windows cost a fraction of whole ones.
    most = sounds.WINDOW if is_whole else 3.2
    make = sounds.stream if kind < 0.2 else lambda *sources: sounds.single(*sources, most)
    found = [make(utterances, features) if rng.random() < 0.97 else sounds.silence(rng, features, most) for _ in range(BATCH)]
    frames = 2 * sounds.STATES if is_whole else max(len(one.features) for one in found)
    frames = min(2 * sounds.STATES, 20 * math.ceil(frames / 20))
    sound = torch.zeros(BATCH, frames, sounds.BANDS)
    length = max(len(one.prompt) + len(one.tokens) for one in found) - 1
    inputs = torch.full((BATCH, length), IDS[END])
    wanted = torch.full((BATCH, length), -100)
    halves = torch.stack([one.halves for one in found])[:, : frames // 2]
    guides = [torch.zeros(BATCH, length, frames // 2) for _ in range(2)]
    for at, one in enumerate(found):
        sound[at, : len(one.features)] = one.features
        tokens = [*one.prompt, *one.tokens]
        start = len(one.prompt) - 1
        inputs[at, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        wanted[at, start : len(tokens) - 1] = torch.tensor(one.tokens)
        if one.is_silent:
            wanted[at, start] = IDS[SILENCE]
        for place, span in enumerate(one.spans):
            if span:
                guides[1][at, start + place, span[0] : span[1]] = 1
                if place + 1 < len(one.tokens):
                    guides[0][at, start + place + 1, span[0] : span[1]] = 1
    return sound, inputs, wanted, halves, guides


def losses(model, helper, made):
    sound, inputs, wanted, halves, guides = made
    states = encode(model, sound)
    scores, looks = decode(model, inputs, states)
    written = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100)
    seen = F.cross_entropy(helper(states).flatten(0, 1), halves.flatten())
    look = 0
    for weights, guide in zip((looks[0], looks[-1]), guides):
        has = guide.sum(-1) > 0
        inside = (weights[:, :GUIDED] * guide[:, None]).sum(-1).clamp(min=1e-6)
        look = look - (inside.log().mean(1)[has]).mean()
    return written, seen, look


@torch.no_grad()
def hear(model, features, most=CONTEXT // 2):
    """Words and times of windows of features, by the engine's rules: the first token is a time."""
    sound = torch.zeros(len(features), 2 * sounds.STATES, sounds.BANDS)
    for at, one in enumerate(features):
        sound[at, : min(len(one), sound.size(1))] = one[: sound.size(1)]
    states = encode(model, sound)
    tokens = torch.full((len(features), 1), IDS[START])
    ended = torch.zeros(len(features), dtype=torch.bool)
    for step in range(most):
        scores = decode(model, tokens, states)[0][:, -1]
        if step == 0:
            scores[:, :FIRST_TIME] = -math.inf
        scores[:, IDS[START] : FIRST_TIME] = -math.inf
        following = scores.argmax(-1)
        following[ended] = IDS[END]
        tokens = torch.cat([tokens, following[:, None]], 1)
        ended |= following == IDS[END]
        if ended.all():
            break
    return [row[1:].tolist() for row in tokens]


class HeldOut:
    """Held-out sentences of espeak-ng's own voices, without noise."""

    def __init__(self, utterances, features, count=60):
        self.wanted = words.held_out(count)
        voices = ["en-us", "en-us+f2", "en+m3", "en-us+m7"]
        self.features = [features(utterances.speak(some, voice=voices[at % 4])[0]) for at, some in enumerate(self.wanted)]

    def judge(self, model):
        found = [vocabulary.text_of(tokens) for tokens in hear(model, self.features)]
        right = np.array([text == " ".join(some) for text, some in zip(found, self.wanted)])
        wrong = [f"{' '.join(some)} -> {text}" for text, some in zip(found, self.wanted) if text != " ".join(some)]
        return right, wrong


def main():
    parser = options(minutes=30.0, rate=0.02, adam_rate=3e-3, pool=2500)
    parser.add_argument("--others", help="sounds of the small model that speaks, by models/demo-speech/export.py --teach")
    arguments = begin(parser, seed=3)
    model = network()
    helper = torch.nn.Linear(WIDTH, 1 + 2 * len(words.WORDS))
    steppers = [*optimizers([model], arguments.rate, arguments.adam_rate, ("embed", "conv1")),
                adam(helper.parameters(), arguments.adam_rate)]
    training = Training(CHECKPOINT, model, steppers, decay=0.99, helpers={"helper": helper})
    rng = random.Random(100 + training.count)
    features = sounds.Features()
    others = torch.load(arguments.others, weights_only=False) if arguments.others else ()
    utterances = sounds.Utterances(rng, arguments.pool, others)
    held = HeldOut(utterances, features)
    began = time.time()
    utterances.renew(min(600, arguments.pool))
    print(f"spoke after {time.time() - began:.0f} s", flush=True)
    errors = []

    def report():
        return "errors " + " ".join(f"{error:.3f}" for error in np.mean(errors[-30:], 0))

    def look():
        right, wrong = held.judge(model)
        print(f"held out: {right.sum()} of {len(right)};", "; ".join(wrong[:4]), flush=True)

    for share in training.steps(minutes=arguments.minutes, report=report, evaluate=look, evaluate_minutes=3):
        training.set_rates(warm_up(training.count, 60) * linear(share, 1.5))
        utterances.renew(4 if len(utterances.pool) < arguments.pool else 2)
        parts = losses(model, helper, batch(utterances, features, rng))
        errors.append([part.item() for part in parts])
        training.step(parts[0] + 0.5 * parts[1] + 0.2 * parts[2])


if __name__ == "__main__":
    main()
