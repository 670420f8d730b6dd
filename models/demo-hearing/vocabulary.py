"""The tokenizer of the small model that hears: each word is one token, other text is spelled in bytes; then Whisper's tokens
that are no text, with a time for each state of a window."""

import json

from words import WORDS

WINDOW = 6.0
STEP = 0.02
END, START = "<|endoftext|>", "<|startoftranscript|>"
SILENCE, EARLIER, NO_TIMES = "<|nospeech|>", "<|startofprev|>", "<|notimestamps|>"
SPECIAL = [END, START, "<|en|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", EARLIER, SILENCE, NO_TIMES]
TIMES = [f"<|{step * STEP:.2f}|>" for step in range(round(WINDOW / STEP) + 1)]
UNKNOWN = "<unk>"


def pieces():
    found = [(UNKNOWN, 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("▁", -4.0)]
    return found + [("▁" + word, -1.0) for word in WORDS]


NAMES = [name for name, _ in pieces()] + SPECIAL + TIMES
IDS = {name: at for at, name in enumerate(NAMES)}
FIRST_WORD, FIRST_TIME = IDS["▁" + WORDS[0]], IDS[TIMES[0]]


def word_id(word):
    return IDS["▁" + word]


def text_of(ids):
    return " ".join(NAMES[at][1:] for at in ids if FIRST_WORD <= at < FIRST_WORD + len(WORDS))


def write(folder):
    found = pieces()
    added = [{"id": len(found) + at, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for at, name in enumerate(SPECIAL + TIMES)]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": found},
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
        file.write("\n")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "bos_token": END, "eos_token": END,
                   "pad_token": END, "unk_token": UNKNOWN}, file, indent=2)
        file.write("\n")
