"""Tokenizers with a unigram vocabulary in which every byte has a piece, in the format of tokenizers."""

import json

BYTES = [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
SIGNS = [(sign, -6.0) for sign in "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()"]
UNKNOWN = "<unk>"


def words(names):
    """Each word is one token, with the space before it."""
    return [("▁" + name, -1.0) for name in names]


def write(folder, pieces, special, limit, normalizer=None, post_processor=None, **roles):
    """The two files. `special` are tokens with their ids, `roles` those of them that are the end and the like."""
    added = [{"id": at, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for name, at in special]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": post_processor,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]},
        "model": {"type": "Unigram", "unk_id": pieces.index((UNKNOWN, 0.0)), "byte_fallback": True, "vocab": pieces},
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
        file.write("\n")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": limit, **roles, "unk_token": UNKNOWN}, file, indent=2)
        file.write("\n")
