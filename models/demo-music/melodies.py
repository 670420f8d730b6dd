"""Melodies, their sentences, and the latents that play them.

A melody is four notes of the scale of C major, one after another and again from the start. A frame of latents lasts a
period of all notes (`tones.py`), some 91 ms.
"""

import random
from dataclasses import dataclass

import numpy as np

# Notes start on the seven in the middle; a melody leaves its first note by three steps at most.
NOTES = ["C", "D", "E", "F", "G", "A", "B", "C", "D", "E", "F", "G", "A"]
FIRST = 3
STARTS = NOTES[FIRST : FIRST + 7]
PATTERNS = {"rises": (0, 1, 2, 3), "falls": (0, -1, -2, -3), "stays": (0, 0, 0, 0), "wanders": (0, 1, 2, 1)}
# Frames of a note.
TEMPOS = {"slow": 12, "medium": 6, "fast": 3}
# Whether there are overtones, and whether notes die away.
TIMBRES = {"flute": (False, False), "organ": (True, False), "bell": (False, True), "guitar": (True, True)}
FRAMES = 44
# All patterns at all tempos repeat after so many frames.
ROUND = 48
# Frames of a place of the transformer.
PATCH = 3
CHANNELS = 16
BRIGHT = len(NOTES)
# A note that sounds, in latents; overtones and none are as far from nothing.
LOUD, SIDE = 3.0, 1.5
GAP, DECAY = 0.3, 0.55

VERBS = {
    "rises": ["rises from", "climbs from", "goes up from", "rising from", "going up from"],
    "falls": ["falls from", "descends from", "goes down from", "falling from", "going down from"],
    "stays": ["stays on", "repeats", "stays at", "staying on", "repeating"],
    "wanders": ["goes up and down from", "wanders from", "moves up and down from", "going up and down from"],
}
SPEEDS = {"slow": ["slow", "calm"], "medium": ["medium", "steady"], "fast": ["fast", "quick"]}
TUNES = ["melody", "tune", "song"]
WORDS = sorted({word for phrases in VERBS.values() for phrase in phrases for word in phrase.split()}
               | {word for names in SPEEDS.values() for word in names} | set(TUNES) | set(TIMBRES)
               | {"a", "A", "an", "An", "that", "plays", "on", "music", "with", "the", "note", "Play", "play", "of", "N/A", "en",
                  "plain", "nice"}
               | set(NOTES) | {note.lower() for note in NOTES} | set("0123456789"))


@dataclass
class Melody:
    start: str
    pattern: str
    tempo: str
    timbre: str

    def notes(self, frames=FRAMES):
        """For each frame the place of its note among all, and its loudness."""
        each = TEMPOS[self.tempo]
        at, inside = np.arange(frames) // each, np.arange(frames) % each
        places = FIRST + STARTS.index(self.start) + np.array(PATTERNS[self.pattern])[at % 4]
        if TIMBRES[self.timbre][1]:
            return places, DECAY ** inside.astype(np.float32)
        return places, np.where(inside == each - 1, GAP, 1.0).astype(np.float32)

    def latents(self, frames=FRAMES):
        places, loud = self.notes(frames)
        latents = np.zeros((frames, CHANNELS), np.float32)
        latents[np.arange(frames), places] = LOUD * loud
        latents[:, BRIGHT] = SIDE if TIMBRES[self.timbre][0] else -SIDE
        return latents

    def parts(self):
        return self.start, self.pattern, self.tempo, self.timbre


def clock(frames):
    """What silence is stored as: the place in a round, in channels that make no sound without notes. Each three frames,
    which the transformer sees as one place, hold nine numbers."""
    at = np.arange(ROUND // PATCH)
    angles = 2 * np.pi * at / len(at)
    waves = [wave(many * angles) for many in (1, 2, 4) for wave in (np.sin, np.cos)]
    bits = [1.0 - 2 * (at >> bit & 1) for bit in range(3)]
    code = 1.5 * np.stack(waves + bits, 1).reshape(ROUND, CHANNELS - BRIGHT)
    latents = np.zeros((frames, CHANNELS), np.float32)
    latents[:, BRIGHT:] = code[np.arange(frames) % ROUND]
    return latents


def is_held_out(melody):
    """An eighth of the combinations, which training never sees."""
    lists = (STARTS, list(PATTERNS), list(TEMPOS), list(TIMBRES))
    found = [names.index(part) for names, part in zip(lists, melody.parts())]
    return sum(value * factor for value, factor in zip(found, (1, 2, 3, 5))) % 8 == 0


def drawn(rng):
    return Melody(rng.choice(STARTS), rng.choice(list(PATTERNS)), rng.choice(list(TEMPOS)), rng.choice(list(TIMBRES)))


def seen(rng):
    melody = drawn(rng)
    return seen(rng) if is_held_out(melody) else melody


def caption(melody, rng=None):
    """The plain sentence, or one of many."""
    if rng is None:
        return f"a {SPEEDS[melody.tempo][0]} {melody.timbre} melody that {VERBS[melody.pattern][0]} {melody.start}"
    speed, tune = rng.choice(SPEEDS[melody.tempo]), rng.choice(TUNES)
    note = melody.start if rng.random() < 0.8 else melody.start.lower()
    an = "an" if melody.timbre == "organ" else "a"
    verbs = VERBS[melody.pattern]
    says, doing = ([verb for verb in verbs if ("ing" in verb) == is_doing] for is_doing in (False, True))
    kind = rng.random()
    if kind < 0.55:
        text = f"a {speed} {melody.timbre} {tune} that {rng.choice(says)} {note}"
    elif kind < 0.7:
        text = f"{an} {melody.timbre} plays a {speed} {tune} that {rng.choice(says)} {note}"
    elif kind < 0.85:
        text = f"{melody.timbre}, {speed}, {rng.choice(doing)} {note}"
    else:
        text = f"a {speed} {tune} {rng.choice(doing)} {note} on {an} {melody.timbre}"
    if text.startswith("a") and rng.random() < 0.3:
        text = "A" + text[1:]
    return text + ("." if rng.random() < 0.1 else "")


def held_out(count, seed=7):
    """Melodies of combinations that training never sees, each pattern, tempo and timbre about equally often."""
    rng, found = random.Random(seed), []
    every = [Melody(a, b, c, d) for a in STARTS for b in PATTERNS for c in TEMPOS for d in TIMBRES]
    every = [melody for melody in every if is_held_out(melody)]
    rng.shuffle(every)
    while len(found) < count:
        found += every[: count - len(found)]
    return found


if __name__ == "__main__":
    rng = random.Random(3)
    for _ in range(24):
        melody = seen(rng)
        print(caption(melody, rng), "|", caption(melody))
    print(len(held_out(336)), len({melody.parts() for melody in held_out(336)}))
