"""The tokenizer: byte-level BPE with single digits, trained on the corpus itself; and chats as token ids with loss weights."""

import random
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import chats, skills

SPECIAL = ["<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
MARKS = ["<tool_call>", "</tool_call>"]
PAD, BOS, END, SYSTEM, USER, ASSISTANT, TOOL = range(len(SPECIAL))
VOCABULARY = 1024
# How much the words of users, systems and tools count beside the model's own.
OTHERS_WEIGHT = 0.05
# The part of a sum before its result.
SUM = re.compile(r"\d+ [-+*] \d+ =(?= -?\d+\.$)")


def train_tokenizer(path: Path, sample=12000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(MARKS), special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    texts = (re.sub(r"<\|\w+\|>|</?tool_call>", "\n", chats.text(*chats.chat(random.Random(f"tokenizer {i}")))) for i in range(sample))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(path))
    return tokenizer


class Encoder:
    def __init__(self, path: Path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.cache = {}
        words = self.tokenizer.get_vocab().items()
        self.syllables = [i for word, i in words if re.fullmatch("[a-z]{1,5}", word)]
        self.starts = [i for word, i in words if re.fullmatch("Ġ[a-z]{1,6}", word)]

    def ids(self, text):
        """Ids of a text; words between \\x01 and \\x02 are encoded letter by letter."""
        if len(text) < 24 and text in self.cache:
            return self.cache[text]
        out = []
        for i, part in enumerate(re.split("[\x01\x02]", text)):
            if part:
                pieces = part if i % 2 else [part]
                for piece in pieces:
                    out += self.tokenizer.encode(piece, add_special_tokens=False).ids
        if len(text) < 24:
            self.cache[text] = out
        return out

    def drill(self, rng, spelling):
        """Tokens at random, to be repeated, spelt or reversed: nothing teaches copying, on which most skills rest, and the
        letters of tokens as quickly."""
        if rng.random() < spelling:
            tokens = [rng.choice(self.starts), *(rng.choice(self.syllables) for _ in range(rng.randint(0, 2)))]
            word = self.tokenizer.decode(tokens).strip()
            ask, reply = rng.choice([("Spell", skills.spelt(word)), ("Reverse", skills.reversed_word(word))])
            before, after = [*self.ids(ask), *tokens, *self.ids(".")], self.ids(reply)
        else:
            after = tokens = [rng.randrange(len(SPECIAL), VOCABULARY - len(MARKS)) for _ in range(rng.randint(4, 28))]
            before = self.ids(rng.choice(["Say: ", "Repeat: ", "Copy this: ", "Echo: ", "Repeat after me: "])) + tokens
        before = [BOS, USER, *before, END, ASSISTANT]
        return [*before, *after, END], [0.0] * len(before) + [1.0] * (len(after) + 1)

    def weights(self, text, ids):
        """Short replies count more a token than long ones, and a sum's result more than its repetition."""
        weight = min(2.0, (16 / len(ids)) ** 0.5)
        found = SUM.match(text)
        result = len(self.ids(text[found.end() :])) if found else 0
        return [weight] * (len(ids) - result) + [3 * weight] * result

    def encode(self, messages, offered):
        """(ids, weights): weights[i] is what guessing ids[i] counts."""
        ids, weights, run = [], [], ""
        for text, own in chats.segments(messages, offered):
            part = self.ids(text)
            ids += part
            weights += self.weights(text, part) if own else [OTHERS_WEIGHT] * len(part)
        return ids, weights
