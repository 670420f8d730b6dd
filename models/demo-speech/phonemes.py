"""Sentences as the engine hands them to the small model that speaks, and when each of their phonemes sounds.

The pronunciations are those of the engine's English, `src/engine/runtime/speech/english/words.zz`.
"""

import os
import sys
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(1, os.path.join(HERE, "../demo-hearing"))
import words  # noqa: E402

DICTIONARY = HERE.parents[1] / "src/engine/runtime/speech/english/words.zz"
MARKS = ".,!?;:—…"
STRESS = "ˈ"
# Seconds of one frame.
FRAME = 0.02
# espeak-ng's symbols that are one symbol here.
SAME = {"eɪ": "A", "aɪ": "I", "oʊ": "O", "aʊ": "W", "dʒ": "ʤ", "tʃ": "ʧ", "iː": "i", "uː": "u", "ɔː": "ɔ", "ɑː": "ɑ", "ɜː": "ɜɹ",
        "ɚ": "əɹ", "oːɹ": "ɔɹ", "ɔːɹ": "ɔɹ", "ɑːɹ": "ɑɹ", "əl": "ᵊl", "iə": "ɪ", "ɐ": "ə", "aɪɚ": "Iəɹ", "ʊɹ": "ʊɹ", "ɪ": "ɪ"}
VOWELS = "AIOWYaeiouæɑɔəɛɜɪʊʌᵊ"


def pronunciations():
    lines = zlib.decompress(DICTIONARY.read_bytes()).decode().split("\n")
    found = dict(line.split("\t")[:2] for line in lines)
    return {word: found[word] for word in words.WORDS}


WORDS = pronunciations()
SYMBOLS = sorted({symbol for word in WORDS.values() for symbol in word})
VOCABULARY = {symbol: at + 1 for at, symbol in enumerate([" ", *MARKS, *SYMBOLS])}


def match(symbols, spoken):
    """When each symbol of a word begins and ends, from espeak-ng's phonemes: the cheapest way to walk through both."""
    parts = []
    for label, begins, ends in spoken:
        known = SAME.get(label, label)
        for at, symbol in enumerate(known):
            size = (ends - begins) / len(known)
            parts.append((symbol, begins + at * size, begins + (at + 1) * size))
    cost = np.full((len(symbols) + 1, len(parts) + 1), np.inf)
    cost[0, 0], way = 0, {}

    def price(symbol, other):
        if symbol == other:
            return 0.0
        return 0.6 if (symbol in VOWELS) == (other in VOWELS) else 1.5

    for i in range(len(symbols)):
        for j in range(len(parts)):
            for rows, columns in ((1, 1), (2, 1), (1, 2), (1, 3), (3, 1)):
                if i + rows > len(symbols) or j + columns > len(parts):
                    continue
                pairs = [price(a, b[0]) for a in symbols[i : i + rows] for b in parts[j : j + columns]]
                found = cost[i, j] + sum(pairs) / len(pairs) * max(rows, columns) + 0.4 * (rows != columns)
                if found < cost[i + rows, j + columns]:
                    cost[i + rows, j + columns] = found
                    way[i + rows, j + columns] = (rows, columns)
    found, i, j = [], len(symbols), len(parts)
    assert np.isfinite(cost[i, j]), (symbols, parts)
    while i:
        rows, columns = way[i, j]
        begins, ends = parts[j - columns][1], parts[j - 1][2]
        for row in reversed(range(rows)):
            size = (ends - begins) / rows
            found.append((begins + row * size, begins + (row + 1) * size))
        i, j = i - rows, j - columns
    return found[::-1], cost[-1, -1]


def tokens_of(text):
    return [VOCABULARY[symbol] for symbol in text]


def aligned(some, marks, spoken, quiet):
    """Text of phonemes, and the frames of each of its tokens with those around them. `marks` are the marks behind words, and
    `quiet` is how long the sound goes on."""
    text, begins = "", [0.0]
    for at, (word, mark, phonemes) in enumerate(zip(some, marks, spoken)):
        symbols = WORDS[word]
        times, _ = match([symbol for symbol in symbols if symbol != STRESS], phonemes)
        if at:
            text += " "
            before = spoken[at - 1][-1][2]
            # The pause belongs to the mark.
            begins.append(max(times[0][0] - FRAME, before) if marks[at - 1] else times[0][0] - FRAME / 2)
        left = iter(times)
        following = list(times)
        for symbol in symbols:
            text += symbol
            begins.append(following[0][0] if symbol == STRESS else following.pop(0)[0])
        if mark:
            text += mark
            begins.append(phonemes[-1][2])
    begins.append(spoken[-1][-1][2] + (0.1 if marks[-1] else 0.0))
    frames, last = [0], 0
    for time in begins[1:]:
        last = max(int(round(time / FRAME)), last + 1)
        frames.append(last)
    total = max(last + 4, int(round(quiet / FRAME)))
    return text, np.diff([*frames, total])


if __name__ == "__main__":
    from espeak import Speaker

    speaker = Speaker()
    for word in words.WORDS:
        found = speaker.say([word])[2][0]
        symbols = [symbol for symbol in WORDS[word] if symbol != STRESS]
        times, cost = match(symbols, found)
        print(f"{cost:.1f}", word, WORDS[word], " ".join(f"{label}" for label, *_ in found),
              " ".join(f"{symbol}{1000 * (b - a):.0f}" for symbol, (a, b) in zip(symbols, times)))
    some = ["one", "seven", "apple", "green"]
    samples, _, spoken = speaker.say(some)
    print(aligned(some, ["", "", "", "."], spoken, 2.0))
    print(len(VOCABULARY), "".join(VOCABULARY))
