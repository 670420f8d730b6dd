"""Trains the text encoder, the encoder of conditions and the transformer by flow matching. Goes on from its last checkpoint;
ends after so many minutes.

    python train_network.py --minutes 40
"""

import math
import os
import random
import sys

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AceStepConditionEncoder, AceStepTransformer1DModel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

import melodies
import tones
import vocabulary

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from loop import Training, begin, linear, options, warm_up  # noqa: E402
from muon import adam, optimizers  # noqa: E402

CHECKPOINT = "checkpoints/network.pt"
BATCH = 64
STEPS, SHIFT = 8, 3.0
# As long as diffusers' class has it.
SILENCE = 15000
TIMBRE_FRAMES = math.ceil(30 * tones.RATE / tones.HOP)
TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 4096, "tie_word_embeddings": True}
CONDITIONS = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
              "text_hidden_dim": 64, "timbre_hidden_dim": melodies.CHANNELS, "num_lyric_encoder_hidden_layers": 1,
              "num_timbre_encoder_hidden_layers": 1}
MUSIC = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3,
         "num_key_value_heads": 1, "head_dim": 32, "in_channels": 3 * melodies.CHANNELS, "patch_size": melodies.PATCH,
         "audio_acoustic_hidden_dim": melodies.CHANNELS, "encoder_hidden_size": 64, "rope_theta": 10000.0,
         "layer_types": ["full_attention"] * 4, "is_turbo": True, "model_version": "turbo"}


def networks(size):
    """The text encoder, the encoder of conditions and the transformer."""
    text = Qwen3Model(Qwen3Config(**TEXT, vocab_size=size))
    conditions, network = AceStepConditionEncoder(**CONDITIONS), AceStepTransformer1DModel(**MUSIC)
    with torch.no_grad():
        conditions.silence_latent.copy_(torch.from_numpy(melodies.clock(SILENCE)))
        # No guidance: nothing looks at the state without conditions.
        conditions.null_condition_emb.zero_()
        torch.nn.init.normal_(text.embed_tokens.weight, std=1.0)
        # Branches begin small, so that the first steps train a plain network.
        for block in network.layers:
            for last in (block.self_attn.to_out[0], block.cross_attn.to_out[0], block.mlp.down_proj):
                last.weight.mul_(0.3)
            # At first each place sees all words alike.
            block.cross_attn.norm_q.weight.fill_(0.3)
            block.cross_attn.to_out[0].weight.mul_(5)
        for embedder in (network.time_embed, network.time_embed_r):
            torch.nn.init.zeros_(embedder.time_proj.weight)
            embedder.time_proj.bias.zero_()
        network.time_embed.time_proj.bias.view(6, -1)[[2, 5]] = 1
    return text, conditions, network


def timbre_of(conditions):
    """The state of silence, which all songs have: its encoder is not trained."""
    with torch.no_grad():
        return conditions.timbre_encoder(conditions.silence_latent[:, :TIMBRE_FRAMES], torch.tensor([0]))[0]


def states_of(text, conditions, timbre, tokens, lyrics):
    """What the transformer attends to, in the order of the reference: lyrics, timbre, description."""
    described = conditions.text_projector(text(input_ids=tokens).last_hidden_state)
    sung = text.embed_tokens(lyrics[None])
    sung = conditions.lyric_encoder(sung, torch.ones(sung.shape[:2], dtype=torch.bool))
    others = torch.cat([sung, timbre], 1).expand(len(tokens), -1, -1)
    return torch.cat([others, described], 1)


def description(caption, seconds=4):
    settings = f"- bpm: N/A\n- timesignature: N/A\n- keyscale: N/A\n- duration: {seconds} seconds\n"
    return ("# Instruction\nFill the audio semantic mask based on the given conditions:\n\n# Caption\n"
            f"{caption}\n\n# Metas\n{settings}{vocabulary.END}\n")


def lyrics_of(words=""):
    return f"# Languages\nen\n\n# Lyric\n{words}{vocabulary.END}"


class Captions:
    """Captions with the tokens of their descriptions, those of one length together."""

    def __init__(self, tokenizer, rng, count):
        self.rng, self.tokenizer = rng, tokenizer
        self.lengths = {}
        found = [melodies.seen(rng) for _ in range(count)]
        texts = [description(melodies.caption(melody, rng if rng.random() < 0.5 else None)) for melody in found]
        for melody, tokens in zip(found, tokenizer(texts)["input_ids"]):
            self.lengths.setdefault(len(tokens), []).append((melody, tokens))
        self.lengths = {length: some for length, some in self.lengths.items() if len(some) >= BATCH}
        self.lyrics = torch.tensor(tokenizer(lyrics_of())["input_ids"])

    def batch(self):
        """Latents, tokens of descriptions and of lyrics. Some songs have another length or name another one, and some have lyrics:
        neither says anything about the melody."""
        rng = self.rng
        some = rng.choices(list(self.lengths.values()), [len(some) for some in self.lengths.values()])[0]
        found = rng.sample(some, BATCH)
        frames = melodies.FRAMES if rng.random() < 0.75 else rng.randrange(12, 97)
        tokens = torch.tensor([tokens for _, tokens in found])
        seconds = int(frames * tones.HOP / tones.RATE) if rng.random() < 0.9 else rng.randrange(10, 100)
        seconds = torch.tensor(self.tokenizer(str(seconds))["input_ids"]).expand(BATCH, -1)
        tokens = torch.cat([tokens[:, :-2], seconds, tokens[:, -1:]], 1)
        lyrics = self.lyrics
        if rng.random() < 0.1:
            words = ["".join(rng.choices("abcdefghijklmnoprstuvwy", k=rng.randrange(1, 7))) for _ in range(rng.randrange(1, 7))]
            lyrics = torch.tensor(self.tokenizer(lyrics_of(" ".join(words)))["input_ids"])
        return torch.from_numpy(np.stack([melody.latents(frames) for melody, _ in found])), tokens, lyrics


def source(conditions, frames):
    silence = conditions.silence_latent[:, :frames]
    return torch.cat([silence, torch.ones_like(silence)], 2)


@torch.no_grad()
def compose(modules, tokenizer, captions, frames=melodies.FRAMES, steps=STEPS, seed=0):
    """Latents, with all steps from noise."""
    text, conditions, network = modules
    made, timbre = [], timbre_of(conditions)
    lyrics = torch.tensor(tokenizer(lyrics_of())["input_ids"])
    levels = torch.linspace(1, 0, steps + 1)
    levels = SHIFT * levels / (1 + (SHIFT - 1) * levels)
    for at, caption in enumerate(captions):
        tokens = torch.tensor([tokenizer(description(caption))["input_ids"]])
        states = states_of(text, conditions, timbre, tokens, lyrics)
        x = torch.randn(1, frames, melodies.CHANNELS, generator=torch.Generator().manual_seed(seed + at))
        for level, following in zip(levels, levels[1:]):
            times = level.expand(1)
            flow = network(x, times, times, states, source(conditions, frames)).sample
            x = x + (following - level) * flow
        made.append(x[0])
    return torch.stack(made).numpy()


def is_right(latents, melody):
    """Start, pattern and tempo; timbre. Read from latents, for a look while the training runs; `judge.py` listens."""
    wanted = melody.latents(len(latents))
    sounds = wanted[:, : melodies.BRIGHT].max(1) > 0.5 * melodies.LOUD
    same = latents[:, : melodies.BRIGHT].argmax(1) == wanted[:, : melodies.BRIGHT].argmax(1)
    loud = latents[:, : melodies.BRIGHT].max(1)
    gaps = [np.abs(loud - melodies.Melody(*melody.parts()[:3], name).latents(len(latents))[:, : melodies.BRIGHT].max(1)).mean()
            for name in melodies.TIMBRES]
    dies = min(gaps[2:]) < min(gaps[:2])
    kind = (latents[:, melodies.BRIGHT].mean() > 0, dies)
    return same[sounds].all(), melodies.TIMBRES[melody.timbre] == kind


def main():
    arguments = begin(options(minutes=40.0, rate=0.015), seed=2)
    os.makedirs("out/tokenizer", exist_ok=True)
    size = len(vocabulary.write("out/tokenizer"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained("out/tokenizer")
    modules = networks(size)
    text, conditions, network = modules
    conditions.timbre_encoder.requires_grad_(False)
    conditions.null_condition_emb.requires_grad_(False)
    names = ("proj_out", "proj_in", "scale_shift", "time_proj", "condition_embedder")
    rest = [weight for module in (text, conditions) for weight in module.parameters() if weight.requires_grad]
    steppers = [*optimizers([network], arguments.rate, 2e-3, names), adam(rest, 2e-3)]
    training = Training(CHECKPOINT, modules, steppers, unit="samples", decay=0.995)
    data = Captions(tokenizer, random.Random(200 + training.count), 20000)
    timbre = timbre_of(conditions)
    print({length: len(some) for length, some in sorted(data.lengths.items())}, "captions of each length", flush=True)
    errors = []

    def look():
        found = melodies.held_out(42)
        made = compose(modules, tokenizer, [melodies.caption(melody) for melody in found])
        right = np.array([is_right(latents, melody) for latents, melody in zip(made, found)])
        print(f"held out: notes {right[:, 0].mean():.2f}, timbre {right[:, 1].mean():.2f}, both {right.all(1).mean():.2f}", flush=True)

    for share in training.steps(minutes=arguments.minutes, report=lambda: f"error {np.mean(errors[-50:]):.4f}",
                                evaluate=look, evaluate_minutes=4):
        training.set_rates(warm_up(training.count, 100 * BATCH) * linear(share, 1.6))
        z, tokens, lyrics = data.batch()
        sigmas = torch.rand(len(z))
        sigmas = SHIFT * sigmas / (1 + (SHIFT - 1) * sigmas)
        # Under noise alone all is up to the words.
        sigmas[: BATCH // 4] = 1
        drawn, level = torch.randn_like(z), sigmas.view(-1, 1, 1)
        x = (1 - level) * z + level * drawn
        states = states_of(text, conditions, timbre, tokens, lyrics)
        around = source(conditions, z.size(1)).expand(len(z), -1, -1)
        loss = F.mse_loss(network(x, sigmas, sigmas, states, around).sample, drawn - z)
        errors.append(loss.item())
        training.step(loss, len(z), BATCH)


if __name__ == "__main__":
    main()
