"""Hears by the model folder and transformers' own network, with the engine's rules of what may follow."""

import math
from pathlib import Path

import torch
from transformers import WhisperForConditionalGeneration

import sounds
import vocabulary
from vocabulary import END, FIRST_TIME, IDS, START

HERE = Path(__file__).resolve().parent
LATEST_FIRST = 50


class Listener:
    def __init__(self):
        self.model = WhisperForConditionalGeneration.from_pretrained(HERE, dtype=torch.float32).eval()
        self.features = sounds.Features()

    def allowed(self, scores, written):
        """The engine's `forbid`."""
        scores = scores.clone()
        if not written:
            scores[:FIRST_TIME] = -math.inf
            scores[FIRST_TIME + LATEST_FIRST + 1 :] = -math.inf
        scores[IDS[START] : FIRST_TIME] = -math.inf
        was_time = bool(written) and written[-1] >= FIRST_TIME
        was_opened = was_time and (len(written) < 2 or written[-2] >= FIRST_TIME)
        if was_opened:
            scores[FIRST_TIME:] = -math.inf
        elif was_time:
            scores[: IDS[END]] = -math.inf
        times = [token for token in written if token >= FIRST_TIME]
        if times:
            scores[FIRST_TIME : times[-1] + int(not (was_time and not was_opened))] = -math.inf
        if scores[FIRST_TIME:].logsumexp(0) > scores[:FIRST_TIME].max():
            scores[:FIRST_TIME] = -math.inf
        return scores

    @torch.no_grad()
    def tokens(self, samples):
        """Tokens of one window without opening and end, and the mean of their logarithms of probabilities with the end."""
        found = self.features(samples)[: 2 * sounds.STATES]
        sound = torch.zeros(1, 2 * sounds.STATES, sounds.BANDS)
        sound[0, : len(found)] = found
        states = self.model.model.encoder(sound.transpose(1, 2))
        written, total = [], 0.0
        while len(written) < self.model.config.max_target_positions // 2:
            ids = torch.tensor([[IDS[START], *written]])
            scores = self.model(encoder_outputs=states, decoder_input_ids=ids).logits[0, -1]
            scores = self.allowed(scores, written).log_softmax(0)
            best = int(scores.argmax())
            total += float(scores[best])
            if best == IDS[END]:
                break
            written.append(best)
        return written, total / (len(written) + 1)

    def hear(self, samples):
        """Words of at most one window."""
        return vocabulary.text_of(self.tokens(samples)[0])
