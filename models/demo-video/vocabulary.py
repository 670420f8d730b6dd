"""The tokenizer of the demo video model in the format of umT5: a unigram vocabulary with every byte, and the words of the
captions as one token each."""

import os
import sys

import scenes

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
import unigram  # noqa: E402

PAD, END = "<pad>", "</s>"


def pieces():
    found = [(PAD, 0.0), (END, 0.0), (unigram.UNKNOWN, 0.0), *unigram.BYTES, ("▁", -4.0), *unigram.SIGNS]
    return found + unigram.words(scenes.WORDS)


def write(folder):
    found = pieces()
    sequence = lambda id, type_id: {"Sequence": {"id": id, "type_id": type_id}}
    end = lambda type_id: {"SpecialToken": {"id": END, "type_id": type_id}}
    post_processor = {
        "type": "TemplateProcessing", "single": [sequence("A", 0), end(0)],
        "pair": [sequence("A", 0), end(0), sequence("B", 0), end(0)],
        "special_tokens": {END: {"id": END, "ids": [1], "tokens": [END]}},
    }
    unigram.write(folder, found, [(found[at][0], at) for at in range(3)], 512, {"type": "Lowercase"}, post_processor,
                  eos_token=END, pad_token=PAD)
    return found


if __name__ == "__main__":
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
