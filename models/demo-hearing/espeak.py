"""Speech to learn from, by espeak-ng (Debian's package): samples, and the exact times of words and phonemes.

    python espeak.py "hello world"    writes out/espeak.wav and prints the times
"""

import ctypes
import os
import sys

import numpy as np

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import write_wave  # noqa: E402

RATE = 22050
RETRIEVAL, PHONEME_EVENTS, PHONEME_IPA = 1, 1, 2
UTF8, END_PAUSE = 1, 0x1000
WORD, SENTENCE_END, MESSAGE_END, PHONEME = 1, 5, 6, 7
SPEED, PITCH, RANGE, WORD_GAP = 1, 3, 4, 7


class Label(ctypes.Union):
    _fields_ = [("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8)]


class Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("identifier", ctypes.c_uint), ("text_position", ctypes.c_int), ("length", ctypes.c_int),
                ("milliseconds", ctypes.c_int), ("sample", ctypes.c_int), ("user", ctypes.c_void_p), ("label", Label)]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))


class Speaker:
    """One process has one."""

    def __init__(self):
        self.library = ctypes.CDLL("libespeak-ng.so.1")
        found = self.library.espeak_Initialize(RETRIEVAL, 0, None, PHONEME_EVENTS | PHONEME_IPA)
        assert found == RATE, f"espeak-ng speaks at {found} Hz"
        self.callback = CALLBACK(self.receive)
        self.library.espeak_SetSynthCallback(self.callback)
        self.voice = None

    def receive(self, samples, count, events):
        if samples and count:
            self.parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        at = 0
        while events[at].type:
            event = events[at]
            if event.type in (WORD, SENTENCE_END, MESSAGE_END, PHONEME):
                label = event.label.string.decode("utf-8", "replace") if event.type == PHONEME else ""
                self.events.append((event.type, event.milliseconds / 1000, event.text_position, label))
            at += 1
        return 0

    def say(self, words, voice="en-us", speed=150, pitch=50, variety=50, gap=0):
        """Samples in floats; of each word when it begins and ends; of each word the phonemes as (symbol, begins, ends)."""
        if voice != self.voice:
            assert self.library.espeak_SetVoiceByName(voice.encode()) == 0, voice
            self.voice = voice
        for setting, value in ((SPEED, speed), (PITCH, pitch), (RANGE, variety), (WORD_GAP, gap)):
            self.library.espeak_SetParameter(setting, value, 0)
        self.parts, self.events = [], []
        text = (" ".join(words) + ".").encode()
        self.library.espeak_Synth(text, len(text) + 1, 0, 1, 0, UTF8 | END_PAUSE, None, None)
        self.library.espeak_Synchronize()
        samples = np.concatenate(self.parts).astype(np.float32) / 32768
        starts = np.cumsum([1] + [len(word) + 1 for word in words])[:-1]
        spoken = [[] for _ in words]
        word = -1
        for at, (kind, begins, position, label) in enumerate(self.events):
            if kind == WORD:
                word = int(np.searchsorted(starts, position, "right")) - 1
            elif kind == PHONEME and word >= 0 and label.strip("_: ") and not label.startswith("_"):
                ends = next((later[1] for later in self.events[at + 1 :] if later[0] in (PHONEME, MESSAGE_END)), len(samples) / RATE)
                spoken[word].append((label, begins, ends))
        if not all(spoken):
            return None
        return samples, [(some[0][1], some[-1][2]) for some in spoken], spoken


if __name__ == "__main__":
    samples, times, phonemes = Speaker().say(sys.argv[1].split())
    for word, (begins, ends), some in zip(sys.argv[1].split(), times, phonemes):
        print(f"{word} {begins:.3f} to {ends:.3f}:", " ".join(f"{symbol} {begins:.3f}" for symbol, begins, _ in some))
    write_wave("out/espeak.wav", samples, RATE)
