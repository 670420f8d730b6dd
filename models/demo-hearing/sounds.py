"""What the small model that hears trains on: sentences of many voices, their features, and the tokens to write."""

import random

import numpy as np
import torch
from scipy.signal import lfilter, resample_poly
from transformers import WhisperFeatureExtractor

import words
from espeak import RATE as SPOKEN_RATE
from espeak import Speaker
from vocabulary import EARLIER, END, FIRST_TIME, IDS, NO_TIMES, START, STEP, WINDOW, word_id

RATE, HOP, BANDS = 16000, 160, 40
STATES = round(WINDOW / STEP)
LANGUAGES = ["en-us"] * 4 + ["en", "gmw/en-GB-scotland", "gmw/en-GB-x-rp"]
VARIANTS = ["", "", "", "+m1", "+m2", "+m3", "+m4", "+m5", "+m6", "+m7", "+f1", "+f2", "+f3", "+f4", "+f5", "+klatt", "+klatt2",
            "+klatt4", "+Annie", "+Andy", "+steph", "+Alicia", "+Michael"]
# Words of one segment at most, and the least silence in seconds that ends one.
SEGMENT = 6
# Times are written in steps of so many states.
GRID = 2


class Features:
    """As the engine computes them."""

    def __init__(self):
        filters = WhisperFeatureExtractor(feature_size=BANDS).mel_filters
        self.filters = torch.from_numpy(np.asarray(filters, np.float32))
        self.window = torch.hann_window(400)

    def __call__(self, samples):
        """(frames, bands) of a sound, leveled."""
        samples = torch.as_tensor(samples, dtype=torch.float32)
        frames = len(samples) // HOP
        spectrum = torch.stft(torch.nn.functional.pad(samples, (0, 400)), 400, HOP, window=self.window, return_complex=True)
        power = spectrum[:, : frames + 2].abs() ** 2
        logarithms = (self.filters.T @ power).clamp(min=1e-10).log10()
        return ((logarithms.clamp(min=logarithms.max() - 8) + 4) / 4)[:, :frames].T


class Utterances:
    """Sounds at 16 kHz with the words and their times. Old ones give way to new ones."""

    def __init__(self, rng, size, others=()):
        self.rng, self.size, self.speaker = rng, size, Speaker()
        self.pool, self.others = [], list(others)

    def speak(self, some, **settings):
        found = self.speaker.say(some, **settings)
        if found is None:
            return None
        samples, times, _ = found
        samples = resample_poly(samples, 320, 441).astype(np.float32)
        return samples[: int((times[-1][1] + 0.15) * RATE)], list(zip(some, times))

    def draw(self):
        rng = self.rng
        most = words.MOST if rng.random() < 0.8 else 12
        voice = rng.choice(LANGUAGES) + rng.choice(VARIANTS)
        if rng.random() < 0.3:
            voice = "en-us"
        settings = {"voice": voice, "speed": rng.randint(110, 230), "pitch": rng.randint(25, 75), "variety": rng.randint(0, 90),
                    "gap": rng.choice([0, 0, 0, 2, 8])}
        return self.speak(words.seen(rng, 1 if rng.random() < 0.2 else words.LEAST, most), **settings)

    def renew(self, count):
        for _ in range(count):
            found = self.draw()
            if found is None:
                continue
            if len(self.pool) < self.size:
                self.pool.append(found)
            else:
                self.pool[self.rng.randrange(self.size)] = found

    def one(self):
        """An utterance at another speed and pitch."""
        source = self.others if self.others and self.rng.random() < 0.4 else self.pool
        samples, spoken = self.rng.choice(source)
        pace = self.rng.uniform(0.88, 1.14)
        at = np.arange(int(len(samples) / pace)) * pace
        samples = np.interp(at, np.arange(len(samples)), samples).astype(np.float32)
        return samples, [(word, (begins / pace, ends / pace)) for word, (begins, ends) in spoken]


def harmed(samples, rng):
    """Another microphone: its noise, and how it hears high and low."""
    level = np.sqrt((samples**2).mean()) + 1e-6
    if rng.random() < 0.4:
        samples = lfilter([1, rng.uniform(-0.7, 0.5)], [1], samples).astype(np.float32)
    if rng.random() < 0.7:
        noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(len(samples)).astype(np.float32)
        if rng.random() < 0.5:
            noise = lfilter([0.3], [1, -0.95], noise).astype(np.float32)
        samples = samples + noise * level * 10 ** (-rng.uniform(8, 50) / 20)
    return samples


class Example:
    """Features of one window, tokens, and the state where each word is."""

    def __init__(self, samples, spoken, rng, features, breaks=()):
        self.features = features(harmed(samples, rng))[: 2 * STATES]
        if rng.random() < 0.5:
            tilt = torch.linspace(-1, 1, BANDS) * rng.uniform(-0.15, 0.15)
            self.features = self.features + tilt
        if rng.random() < 0.3:
            # A sound that is less clear, as another network may make it.
            blurred = torch.nn.functional.avg_pool1d(self.features.T[None], 3, 1, 1, count_include_pad=False)[0].T
            self.features = self.features.lerp(blurred, rng.random())
        state = lambda seconds: min(max(int(round(seconds / STEP)), 0), STATES)
        whole = [(word, (state(a), state(b))) for word, (a, b) in spoken]
        # Of each state the half of the word that it is in: none, or twice the word's number and one or two.
        self.halves = torch.zeros(STATES, dtype=torch.long)
        for word, (begins, ends) in whole:
            number, middle = 2 * words.WORDS.index(word), (begins + ends) // 2
            self.halves[begins:middle] = number + 1
            self.halves[middle:ends] = number + 2
        time = lambda at: FIRST_TIME + min(GRID * round(at / GRID), STATES)
        # Tokens, and of each the states that it is about.
        self.tokens, self.spans = [], []
        put = lambda token, span=None: (self.tokens.append(token), self.spans.append(span))
        segments, current = [], []
        for at, (word, span) in enumerate(whole):
            current.append((word, span))
            if len(current) == SEGMENT or at in breaks or at + 1 == len(whole):
                segments.append(current)
                current = []
        limit = min(STATES, len(self.features) // 2 + 2)
        for segment in segments:
            begins, ends = segment[0][1][0], segment[-1][1][1]
            if begins >= limit - 4:
                break
            put(time(begins), (begins, begins + 4))
            if ends > limit:
                break
            for word, span in segment:
                put(word_id(word), span)
            put(time(ends), (max(ends - 4, 0), ends))
        self.prompt = [IDS[START]]
        if rng.random() < 0.25:
            earlier = [word_id(word) for word in words.draw(rng, 1, 12)]
            if rng.random() < 0.5:
                earlier = [FIRST_TIME + GRID * rng.randrange(0, 20), *earlier, FIRST_TIME + GRID * rng.randrange(40, STATES // GRID)]
            self.prompt = [IDS[EARLIER], *earlier, IDS[START]]
        self.is_silent = not self.tokens
        if not self.is_silent and rng.random() < 0.12:
            # The engine asks for words alone to find out when each is said.
            kept = [(token, span) for token, span in zip(self.tokens, self.spans) if token < IDS[END]]
            self.tokens, self.spans = [token for token, _ in kept], [span for _, span in kept]
            self.prompt.append(IDS[NO_TIMES])
        if self.is_silent:
            self.tokens, self.spans = [FIRST_TIME], [None]
        last = next((span[1] for token, span in zip(self.tokens[::-1], self.spans[::-1]) if token < IDS[END]), None)
        put(IDS[END], (min(last, limit - 6), min(last + 6, limit)) if last else None)


def single(utterances, features, most=WINDOW):
    rng = utterances.rng
    samples, spoken = utterances.one()
    while len(samples) > (most - 0.3) * RATE:
        samples, spoken = utterances.one()
    lead, rest = (int(rng.choice([0, 0, rng.uniform(0, 0.6)]) * RATE) for _ in range(2))
    lead = min(lead, int(most * RATE) - len(samples))
    rest = min(rest, int(most * RATE) - len(samples) - lead)
    samples = np.concatenate([np.zeros(lead, np.float32), samples, np.zeros(rest, np.float32)])
    return Example(samples, [(word, (a + lead / RATE, b + lead / RATE)) for word, (a, b) in spoken], rng, features)


def stream(utterances, features):
    """A window of a longer sound."""
    rng = utterances.rng
    parts, spoken, breaks, length = [], [], set(), 0
    while length < (WINDOW + 1) * RATE and (len(parts) < 2 or rng.random() < 0.9):
        samples, some = utterances.one()
        at = length / RATE
        gap = np.zeros(int(rng.uniform(0.0, 0.8) * RATE), np.float32)
        parts += [samples, gap]
        spoken += [(word, (a + at, b + at)) for word, (a, b) in some]
        breaks.add(len(spoken) - 1)
        length += len(samples) + len(gap)
    # Begins where a word does, about.
    first = rng.randrange(min(4, len(spoken)))
    start = max(0.0, spoken[first][1][0] + rng.uniform(-0.08, 0.02)) if first else 0.0
    samples = np.concatenate(parts)[int(start * RATE) :]
    spoken = [(word, (a - start, b - start)) for word, (a, b) in spoken[first:]]
    return Example(samples, spoken, rng, features, {at - first for at in breaks})


def silence(rng, features, most=WINDOW):
    samples = np.zeros(int(rng.uniform(0.5, most) * RATE), np.float32)
    if rng.random() < 0.7:
        samples += 0.01 * np.random.default_rng(rng.getrandbits(32)).standard_normal(len(samples)).astype(np.float32)
    return Example(samples, [], rng, features)
