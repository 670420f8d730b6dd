"""Turning frames such as "What is {a} plus {b}?" into what people type: wrapped, lower-cased, misspelt."""

import string
from dataclasses import dataclass, field

from . import words

# Said around a question. The last ones of each list are kept for the evaluation.
BEFORE = ["Please ", "Can you tell me: ", "Tell me: ", "Hey, ", "Quick question: ", "I wonder: ", "Now ", "Next: ", "OK, ",
          "And ", "One more: ", "Could you help me? ", "So, ", "I would like to know: ", "Right, ", "Listen: ", "By the way, ", "Just curious: ",
          "A question: ", "Hi, ", "Hello! ", "Look, ", "Let us see: ", "I have a question. ", "Oh, ", "Then ", "My next question: ", "Great, ", "Hm, "]
AFTER = [" Thanks.", " Please.", " Thank you!", " I need it.", " Be brief.", " Do you know?", " Go on.", " Quickly!"]
BEFORE_HELD = ["Well, ", "Another thing: ", "Help me out: "]


@dataclass
class Exchange:
    """One question, its answer, and how the evaluation tells a right answer.

    `before_reply` holds messages between them: tool calls and their results.
    """

    skill: str
    user: str
    reply: str
    expect: dict
    before_reply: list = field(default_factory=list)


def exactly(text):
    return {"kind": "exact", "text": text}


def one_of(*texts):
    return {"kind": "contains", "any": list(texts)}


def plain(reply):
    """The reply as a reader sees it, without the marks around letters that are encoded one by one."""
    return reply.replace("\x01", "").replace("\x02", "")


def letters(word):
    """Marks a word to be encoded letter by letter, so that the model can write words that it has no token for."""
    return f"\x01{word}\x02"


class Frames(list):
    """Frames with some more beside them that are for training only and so leave it alone which ones the evaluation keeps."""

    def __init__(self, frames, *more):
        super().__init__(frames)
        self.more = list(more)


def say(rng, frames, held=False, wrap=True, **values):
    """Fills one of `frames`: the last fifth (at least one) is for the evaluation only."""
    kept = max(1, len(frames) // 5)
    frame = rng.choice(frames[-kept:] if held else frames[:-kept] + getattr(frames, "more", []))
    if wrap and rng.random() < 0.4:
        frame = wrapped(rng, frame, held)
    style = rng.random()
    text = ""
    for literal, value, _, _ in string.Formatter().parse(frame):
        if style < 0.25 or (held and style < 0.3):
            literal = literal.lower()
        elif style < 0.32 and not held:
            literal = misspelt(rng, literal)
        text += literal + (str(values[value]) if value else "")
    if style > 0.85:
        text = text.rstrip("?.! ")
    return text


def wrapped(rng, frame, held):
    if not held and rng.random() < 0.25:
        return frame + rng.choice(AFTER)
    before = rng.choice(BEFORE_HELD if held else BEFORE)
    if not held and rng.random() < 0.15:
        # Whatever somebody says first: it is the question that counts.
        before = " ".join(words.made_up(rng) for _ in range(rng.randint(1, 3))).capitalize() + rng.choice([", ", ": ", "! ", ". "])
    if before.endswith((": ", "? ", "! ", ". ")) or frame.startswith(("{", "I ", "JSON", "Muster")):
        return before + frame
    return before + frame[0].lower() + frame[1:]


def misspelt(rng, text):
    spots = [i for i in range(1, len(text) - 2) if text[i].isalpha() and text[i + 1].isalpha()]
    if not spots:
        return text
    i = rng.choice(spots)
    if rng.random() < 0.5:
        return text[:i] + text[i + 1 :]
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
