"""The tokenizer of the demo music model: a unigram vocabulary with every byte, the words of the captions as one token each,
and the lines around a caption, which are the same in every text, as few tokens."""

import os
import sys

import melodies

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
import unigram  # noqa: E402

END = "<|endoftext|>"
OPEN = "N/A"
SETTINGS = ["\n- timesignature: ", "\n- keyscale: ", "\n- duration: "]
# The longest that fits is taken.
LINES = [
    END,
    "# Instruction\nFill the audio semantic mask based on the given conditions:\n\n# Caption\n",
    "\n\n# Metas\n- bpm: ", *SETTINGS,
    "\n\n# Metas\n- bpm: " + "".join(OPEN + line for line in SETTINGS),
    f" seconds\n{END}",
    "# Languages\n", "\n\n# Lyric\n", f"# Languages\nen\n\n# Lyric\n{END}",
]


def pieces():
    found = [*((line, 0.0) for line in LINES), (unigram.UNKNOWN, 0.0), *unigram.BYTES, ("▁", -4.0), *unigram.SIGNS]
    return found + unigram.words(melodies.WORDS)


def write(folder):
    found = pieces()
    unigram.write(folder, found, [(line, at) for at, line in enumerate(LINES)], 2048, eos_token=END, pad_token=END)
    return found
