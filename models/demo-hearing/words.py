"""The words that both small models of speech know, and sentences of them. Neither model trains on held-out sentences."""

import random
import zlib

DIGITS = "zero one two three four five six seven eight nine".split()
WORDS = DIGITS + """
    cat dog horse bird fish sheep lion
    red blue green yellow black white orange purple brown
    house tree river mountain window garden table water bread apple coffee sugar music paper doctor
    big small happy quick slow young cold warm
    moon star hello world please yes king good morning evening today
""".split()
LEAST, MOST = 3, 6


def is_held_out(words):
    return zlib.crc32(" ".join(words).encode()) % 8 == 0


def draw(rng, least, most):
    """So many words in any order; one in four sentences is of digits alone."""
    some = DIGITS if rng.random() < 0.25 else WORDS
    return rng.choices(some, k=rng.randint(least, most))


def seen(rng, least=LEAST, most=MOST):
    while True:
        words = draw(rng, least, most)
        if not is_held_out(words):
            return words


def held_out(count, seed=1):
    rng, found = random.Random(seed), []
    while len(found) < count:
        words = draw(rng, LEAST, MOST)
        if is_held_out(words) and words not in found:
            found.append(words)
    return found
