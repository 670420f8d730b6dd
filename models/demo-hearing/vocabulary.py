"""The tokenizer of the small model that hears: each word is one token, other text is spelled in bytes; then Whisper's tokens
that are no text, with a time for each state of a window."""

import os
import sys

from words import WORDS

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
import unigram  # noqa: E402

WINDOW = 6.0
STEP = 0.02
END, START = "<|endoftext|>", "<|startoftranscript|>"
SILENCE, EARLIER, NO_TIMES = "<|nospeech|>", "<|startofprev|>", "<|notimestamps|>"
SPECIAL = [END, START, "<|en|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", EARLIER, SILENCE, NO_TIMES]
TIMES = [f"<|{step * STEP:.2f}|>" for step in range(round(WINDOW / STEP) + 1)]


def pieces():
    return [(unigram.UNKNOWN, 0.0), *unigram.BYTES, ("▁", -4.0), *unigram.words(WORDS)]


NAMES = [name for name, _ in pieces()] + SPECIAL + TIMES
IDS = {name: at for at, name in enumerate(NAMES)}
FIRST_WORD, FIRST_TIME = IDS["▁" + WORDS[0]], IDS[TIMES[0]]


def word_id(word):
    return IDS["▁" + word]


def text_of(ids):
    return " ".join(NAMES[at][1:] for at in ids if FIRST_WORD <= at < FIRST_WORD + len(WORDS))


def write(folder):
    special = [(name, IDS[name]) for name in SPECIAL + TIMES]
    unigram.write(folder, pieces(), special, 64, bos_token=END, eos_token=END, pad_token=END)
