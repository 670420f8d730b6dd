"""The tokenizer of the demo music model: a unigram vocabulary with every byte, the words of the captions as one token each,
and the lines around a caption, which are the same in every text, as few tokens."""

import json

import melodies

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
UNKNOWN = "<unk>"


def pieces():
    signs = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()"
    found = [(line, 0.0) for line in LINES] + [(UNKNOWN, 0.0)]
    found += [*((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("▁", -4.0)]
    found += [(sign, -6.0) for sign in signs]
    return found + [("▁" + word, -1.0) for word in melodies.WORDS]


def write(folder):
    found = pieces()
    special = [{"id": at, "content": found[at][0], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for at in range(len(LINES))]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]},
        "model": {"type": "Unigram", "unk_id": len(LINES), "byte_fallback": True, "vocab": found},
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
        file.write("\n")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "eos_token": END,
                   "pad_token": END, "unk_token": UNKNOWN}, file, indent=2)
        file.write("\n")
    return found
