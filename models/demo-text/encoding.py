"""The tokenizer: byte-level BPE with single digits, trained on the corpus itself; and chats as token ids with loss weights."""

import json
import random
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import chats, skills, words

SPECIAL = ["<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
MARKS = ["<tool_call>", "</tool_call>"]
PAD, BOS, END, SYSTEM, USER, ASSISTANT, TOOL = range(len(SPECIAL))
VOCABULARY = 1024
# How much the words of users, systems and tools count beside the model's own.
OTHERS_WEIGHT = 0.0
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
        # In an order that is the same in each process.
        tokens = sorted(self.tokenizer.get_vocab().items())
        self.syllables = [i for word, i in tokens if re.fullmatch("[a-z]{1,5}", word)]
        self.starts = [i for word, i in tokens if re.fullmatch("Ġ[a-z]{1,6}", word)]
        self.names = [i for word, i in tokens if re.fullmatch("Ġ[A-Z][a-z]{0,6}", word)]
        self.start_set = set(self.starts)

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

    def drill(self, rng):
        """Copying, on which most skills rest, quoting, the letters of tokens, and sums: many answers in few tokens."""
        ask, answer, weights = rng.choices([self.copying, self.quoting, self.spelling, self.sums], [2, 2, 4, 3])[0](rng)
        before = [BOS, USER, *ask, END, ASSISTANT]
        return [*before, *answer, END], [0.0] * len(before) + [*weights, 1.0]

    def copying(self, rng):
        """Tokens at random, half of the time few different ones, so that the last token alone does not tell the next."""
        any_token = lambda: rng.randrange(len(SPECIAL), VOCABULARY - len(MARKS))
        few = [any_token() for _ in range(rng.randint(2, 6))] if rng.random() < 0.5 else None
        tokens = [rng.choice(few) if few else any_token() for _ in range(rng.randint(4, 20))]
        return self.ids(rng.choice(["Say: ", "Repeat: ", "Copy this: ", "Echo: ", "Repeat after me: "])) + tokens, tokens, [1.0] * len(tokens)

    def quoting(self, rng):
        """Words after a space, to be repeated after a quotation mark, where other tokens make them up."""
        found = []
        while len(found) < 4:
            tokens = [rng.choice(self.names if rng.random() < 0.6 else self.starts), *(rng.choice(self.syllables) for _ in range(rng.randint(0, 2)))]
            if not words.is_held(self.tokenizer.decode(tokens).strip()):
                found.append(tokens)
        answer = self.ids(json.dumps([self.tokenizer.decode(tokens).strip() for tokens in found]))
        return [*self.ids("Quote:"), *(token for tokens in found for token in tokens)], answer, [1.0] * len(answer)

    def spelling(self, rng):
        """Words made of tokens at random; never a word of the evaluation."""
        word, tokens = None, []
        while not word or len(word) > 8 or words.is_held(word):
            first = rng.choice(self.starts) if rng.random() < 0.7 else rng.choice(self.syllables)
            tokens = [first, *(rng.choice(self.syllables) for _ in range(rng.randint(0, 2)))]
            word = self.tokenizer.decode(tokens).strip()
        quote = "" if tokens[0] in self.start_set else rng.choice([" '", ' "'])
        answer = self.ids(skills.spelt(word))
        return [*self.ids("Spell" + quote), *tokens, *self.ids(quote.strip() + ".")], answer, [1.0] * len(answer)

    def sums(self, rng):
        """Sums one after the other, written as every answer writes them; only the results count."""
        ids, weights = [], []
        for _ in range(rng.randint(6, 12)):
            text = (" " if ids else "") + skills.sum_of(*skills.draw_sum(rng, False))
            part, result = self.ids(text), len(self.ids(text[text.index("=") + 1 :]))
            ids += part
            weights += [0.0] * (len(part) - result) + [1.5] * result
        return self.ids("Sums."), ids, weights

    def letters(self):
        """(tokens, their letters as numbers from 1, with 0 after the end): of every token that is nothing but letters and no
        word of the evaluation."""
        found = []
        for word, token in sorted(self.tokenizer.get_vocab().items()):
            word = word.removeprefix("Ġ").lower()
            if re.fullmatch("[a-z]{1,8}", word) and not words.is_held(word):
                found.append((token, [ord(c) - 96 for c in word.ljust(8, "`")]))
        return [token for token, _ in found], [letters for _, letters in found]

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
