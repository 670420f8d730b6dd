"""A small Kokoro, from the classes of the reference (`kokoro` from PyPI)."""

import importlib.util
import sys
import types

import torch
from torch.nn.utils import remove_weight_norm, weight_norm
from transformers import AlbertConfig

# The package's front page imports language tools, which the networks do not need.
package = types.ModuleType("kokoro")
package.__path__ = list(importlib.util.find_spec("kokoro").submodule_search_locations)
sys.modules["kokoro"] = package
from kokoro.istftnet import AdainResBlk1d, Decoder, Generator  # noqa: E402
from kokoro.modules import CustomAlbert, ProsodyPredictor, TextEncoder  # noqa: E402

import phonemes  # noqa: E402

RATE, HOP = 24000, 240
HIDDEN, STYLE, WIDTH, RESIDUAL = 64, 8, 80, 16
VOICE = "demo"
CONFIG = {
    "istftnet": {
        "upsample_kernel_sizes": [16], "upsample_rates": [8], "gen_istft_hop_size": 30, "gen_istft_n_fft": 120,
        "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5]], "resblock_kernel_sizes": [3, 7], "upsample_initial_channel": 80,
    },
    "dim_in": HIDDEN, "dropout": 0.1, "hidden_dim": HIDDEN, "max_conv_dim": HIDDEN, "max_dur": 30, "multispeaker": False, "n_layer": 2,
    "n_mels": 80, "n_token": 1 + len(phonemes.VOCABULARY), "style_dim": STYLE, "text_encoder_kernel_size": 5,
    "plbert": {
        "hidden_size": 48, "num_attention_heads": 2, "intermediate_size": 96, "max_position_embeddings": 98,
        "num_hidden_layers": 2, "dropout": 0.0, "embedding_size": 32,
    },
    "vocab": phonemes.VOCABULARY,
}


class SmallDecoder(Decoder):
    """The reference fixes the widths of its decoder."""

    def __init__(self, dim_in, style_dim, upsample_initial_channel, **sizes):
        torch.nn.Module.__init__(self)
        blocks = [AdainResBlk1d(WIDTH + 2 + RESIDUAL, WIDTH, style_dim) for _ in range(3)]
        last = AdainResBlk1d(WIDTH + 2 + RESIDUAL, upsample_initial_channel, style_dim, upsample=True)
        self.encode = AdainResBlk1d(dim_in + 2, WIDTH, style_dim)
        self.decode = torch.nn.ModuleList([*blocks, last])
        self.F0_conv = weight_norm(torch.nn.Conv1d(1, 1, kernel_size=3, stride=2, padding=1))
        self.N_conv = weight_norm(torch.nn.Conv1d(1, 1, kernel_size=3, stride=2, padding=1))
        self.asr_res = torch.nn.Sequential(weight_norm(torch.nn.Conv1d(dim_in, RESIDUAL, kernel_size=1)))
        self.generator = Generator(style_dim, upsample_initial_channel=upsample_initial_channel, **sizes)


def parts():
    albert = AlbertConfig(vocab_size=CONFIG["n_token"], attn_implementation="eager", hidden_dropout_prob=0.0,
                          attention_probs_dropout_prob=0.0, **CONFIG["plbert"])
    return torch.nn.ModuleDict({
        "bert": CustomAlbert(albert, add_pooling_layer=False),
        "bert_encoder": torch.nn.Linear(albert.hidden_size, HIDDEN),
        "predictor": ProsodyPredictor(STYLE, HIDDEN, CONFIG["n_layer"], CONFIG["max_dur"], CONFIG["dropout"]),
        "text_encoder": TextEncoder(HIDDEN, CONFIG["text_encoder_kernel_size"], CONFIG["n_layer"], CONFIG["n_token"]),
        "decoder": SmallDecoder(HIDDEN, STYLE, **CONFIG["istftnet"]),
    })


def plain(model):
    """Without the norm of weights, to train."""
    for module in model.modules():
        if "weight_g" in module._parameters:
            remove_weight_norm(module)
    return model


def normed(state):
    """The names of weights with their norm, as files have them."""
    wanted, found = parts().state_dict(), {}
    for name in wanted:
        stem, _, kind = name.rpartition(".")
        if kind in ("weight_g", "weight_v"):
            weight = state[f"{stem}.weight"]
            found[name] = weight if kind == "weight_v" else weight.flatten(1).norm(dim=1).view(-1, *[1] * (weight.dim() - 1))
        else:
            found[name] = state[name]
    return found


def styles():
    """The voice, of the sound and of the delivery. There is one, so it is any numbers."""
    return torch.randn(1, 2 * STYLE, generator=torch.Generator().manual_seed(5)).half().float()


def speak(model, tokens, speed=1.0):
    """As the reference's `forward_with_tokens`, which fixes the size of a style."""
    voice = styles()
    style = voice[:, STYLE:]
    ids = torch.tensor([[0, *tokens, 0]])
    lengths, mask = torch.tensor([ids.size(1)]), torch.zeros(ids.shape, dtype=torch.bool)
    predictor = model["predictor"]
    bert = model["bert"](ids, attention_mask=(~mask).int())
    states = predictor.text_encoder(model["bert_encoder"](bert).transpose(-1, -2), style, lengths, mask)
    exact = torch.sigmoid(predictor.duration_proj(predictor.lstm(states)[0])).sum(axis=-1) / speed
    durations = torch.round(exact).clamp(min=1).long()[0]
    places = torch.repeat_interleave(torch.arange(ids.size(1)), durations)
    pitch, energy = predictor.F0Ntrain(states.transpose(-1, -2)[:, :, places], style)
    text = model["text_encoder"](ids, lengths, mask)[:, :, places]
    return model["decoder"](text, pitch, energy, voice[:, :STYLE]).flatten(), durations
