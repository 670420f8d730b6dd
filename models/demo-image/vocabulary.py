"""The vocabulary of the demo image model, in the format of CLIP: every byte, alone and at the end of a word, and the
words of the scenes as one token each."""

import json

import scenes

BEGIN, END = "<|startoftext|>", "<|endoftext|>"


def byte_letters():
    """The letters that stand for bytes in byte-level vocabularies."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in plain}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(plain)))
    return [letters[byte] for byte in range(256)]


def pieces(word, ranks):
    """A word as byte-pair encoding splits it."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), at) for at, pair in enumerate(zip(parts, parts[1:])))
        if rank == len(ranks):
            break
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    return parts


def merges():
    """Pairs that leave every word of the scenes one piece."""
    ranks, is_whole = {}, False
    while not is_whole:
        is_whole = True
        for word in scenes.WORDS:
            while len(parts := pieces(word, ranks)) > 1:
                ranks[parts[0], parts[1]] = len(ranks)
                is_whole = False
    return list(ranks)


def write(folder):
    letters = byte_letters()
    pairs = merges()
    tokens = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in pairs), BEGIN, END]
    vocabulary = {token: at for at, token in enumerate(dict.fromkeys(tokens))}
    with open(f"{folder}/vocab.json", "w") as file:
        json.dump(vocabulary, file, ensure_ascii=False)
    with open(f"{folder}/merges.txt", "w") as file:
        file.write("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in pairs))
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump({"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": BEGIN, "eos_token": END,
                   "unk_token": END, "pad_token": END, "do_lower_case": True}, file, indent=2)
    with open(f"{folder}/special_tokens_map.json", "w") as file:
        json.dump({"bos_token": BEGIN, "eos_token": END, "unk_token": END, "pad_token": END}, file, indent=2)
    return vocabulary


if __name__ == "__main__":
    import os
    from transformers import CLIPTokenizer

    os.makedirs("out/tokenizer", exist_ok=True)
    vocabulary = write("out/tokenizer")
    tokenizer = CLIPTokenizer(vocab="out/tokenizer/vocab.json", merges="out/tokenizer/merges.txt")
    print(len(vocabulary), len(tokenizer))
    for word in scenes.WORDS:
        ids = tokenizer(word)["input_ids"]
        if len(ids) != 3:
            print(word, tokenizer.convert_ids_to_tokens(ids))
    print(tokenizer("An aqua Red circle, xyzzy!")["input_ids"], tokenizer.pad_token_id, tokenizer.eos_token_id)
