"""Listens to a melody: where notes begin, from loudness; their pitch, from the correlation of a sound with itself; overtones,
from the energy at twice to five times the pitch; and whether notes die away."""

import numpy as np

import melodies
import tones

STEP = tones.HOP // 4
WINDOW = tones.HOP
LEAST_GAP = 6
NAMES = list(melodies.TEMPOS)


def pitch(part, rate):
    """In Hz: the shortest lag of nearly the highest correlation."""
    part = part - part.mean()
    lags = np.arange(int(rate / 1000), int(rate / 240) + 1)
    size = len(part) - lags[-1]
    first = part[:size]
    found = np.array([first @ part[lag : lag + size] / np.sqrt((first @ first) * (part[lag : lag + size] @ part[lag : lag + size]) + 1e-12)
                      for lag in lags])
    peaks = [at for at in range(1, len(lags) - 1) if found[at] >= found[at - 1] and found[at] >= found[at + 1]]
    if not peaks:
        return 0.0
    most = max(found[at] for at in peaks)
    at = next(at for at in peaks if found[at] > 0.93 * most)
    left, here, right = found[at - 1 : at + 2]
    return rate / (lags[at] + 0.5 * (left - right) / (left - 2 * here + right - 1e-12))


def amplitude(part, frequency, rate):
    at = 2 * np.pi * frequency * np.arange(len(part)) / rate
    window = np.hanning(len(part))
    return np.abs((part * window) @ np.exp(-1j * at)) / window.sum()


def onsets(sound):
    """In steps: where it becomes half as loud again within three steps."""
    steps = len(sound) // STEP
    loud = np.sqrt((sound[: steps * STEP].reshape(steps, STEP) ** 2).mean(1))
    least, found = 0.25 * np.quantile(loud, 0.98), []
    for at in range(steps):
        before = loud[max(at - 3, 0) : at].min() if at else 0.0
        rises = loud[at] > least and loud[at] > 1.5 * before
        if rises and (not found or at - found[-1] >= LEAST_GAP):
            found.append(at)
    return found


def judge(sound, rate=tones.RATE):
    """(start, pattern, tempo, timbre) of a sound; empty where nothing fits."""
    begins = [at for at in onsets(sound) if at * STEP + 2 * WINDOW <= len(sound)]
    if len(begins) < 3:
        return "", "", "", ""
    notes = [sound[at * STEP + STEP // 2 :][:WINDOW] for at in begins]
    heard = np.array([pitch(note, rate) for note in notes])
    nearest = lambda hertz: min(range(len(tones.WAVES)), key=lambda place: abs(np.log2(max(hertz, 1) / tones.frequency(place))))
    first = nearest(heard[0])
    is_near = abs(1200 * np.log2(max(heard[0], 1) / tones.frequency(first))) < 60
    places = np.array([nearest(hertz) for hertz in heard[:4]])
    pattern = next((name for name, steps in melodies.PATTERNS.items()
                    if list(places - first) == list(steps[: len(places)])), "")
    gap = np.median(np.diff(begins)) * STEP / tones.HOP
    tempo = min(NAMES, key=lambda name: abs(np.log(gap / melodies.TEMPOS[name])))
    shares, lasts = [], []
    for at, note, hertz in zip(begins, notes, heard):
        over = np.sqrt(sum(amplitude(note, many * hertz, rate) ** 2 for many in (2, 3, 4, 5)))
        shares.append(over / (amplitude(note, hertz, rate) + 1e-9))
        early, late = (sound[at * STEP + start :][: tones.HOP // 2] for start in (tones.HOP // 4, 5 * tones.HOP // 4))
        lasts.append(np.sqrt((late**2).mean() / ((early**2).mean() + 1e-12)))
    kind = (np.median(shares) > 0.25, np.median(lasts) < 0.78)
    timbre = next(name for name, found in melodies.TIMBRES.items() if found == kind)
    return melodies.NOTES[first] if is_near else "", pattern, tempo, timbre


if __name__ == "__main__":
    import torch

    network, right, count = tones.network(), 0, 0
    every = [melodies.Melody(a, b, c, d) for a in melodies.STARTS for b in melodies.PATTERNS for c in melodies.TEMPOS for d in melodies.TIMBRES]
    for melody in every:
        latents = torch.from_numpy(melody.latents())[None].transpose(1, 2)
        with torch.no_grad():
            sound = network.decode(latents).sample[0, 0].numpy()
        found = judge(sound)
        count, right = count + 1, right + (found == melody.parts())
        if found != melody.parts():
            print(melody, found)
    print(f"{right} of {count}; loudest {np.abs(sound).max():.2f}")
    with torch.no_grad():
        back = network.encode(torch.from_numpy(sound)[None, None]).latent_dist.mode()[0].T.numpy()
    print("encoded again:", np.abs(back - melody.latents())[:, : melodies.BRIGHT].max(), melody)
