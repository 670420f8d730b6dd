"""The tokenizer of the demo video model in the format of umT5: a unigram vocabulary with every byte, and the words of the
captions as one token each."""

import json

import scenes

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"


def pieces():
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()"
    found = [(PAD, 0.0), (END, 0.0), (UNKNOWN, 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256)), ("▁", -4.0)]
    found += [(letter, -6.0) for letter in letters]
    return found + [("▁" + word, -1.0) for word in scenes.WORDS]


def write(folder):
    found = pieces()
    special = [{"id": at, "content": found[at][0], "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for at in range(3)]
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": END, "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": END, "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": END, "type_id": 0}}],
            "special_tokens": {END: {"id": END, "ids": [1], "tokens": [END]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]},
        "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": True, "vocab": found},
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file, ensure_ascii=False)
        file.write("\n")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, "eos_token": END,
                   "pad_token": PAD, "unk_token": UNKNOWN}, file, indent=2)
        file.write("\n")
    return found


if __name__ == "__main__":
    import os
    from transformers import AutoTokenizer

    os.makedirs("out/tokenizer", exist_ok=True)
    found = write("out/tokenizer")
    tokenizer = AutoTokenizer.from_pretrained("out/tokenizer")
    print(len(found), len(tokenizer), type(tokenizer).__name__)
    for word in scenes.WORDS:
        if len(tokenizer(word)["input_ids"]) != 2:
            print(word, tokenizer(word).tokens())
    for text in ("", "A Red circle, moves to the right on blue!", "größer x🦀"):
        print(tokenizer(text).tokens(), tokenizer.decode(tokenizer(text)["input_ids"]))
