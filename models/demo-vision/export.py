"""Writes the trained network as a model folder in the layout of transformers, in f16, and what transformers answers about pictures.

    python export.py              the folder
    python export.py --reference  reference.json and reference-N.png (needs the folder)
"""

import argparse
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import network
import pictures
import train_network
import vocabulary
from vocabulary import END, PAD

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import publish, write_json  # noqa: E402

HERE = Path(__file__).resolve().parent
#: As many pixels as `network.SIDE` squared, with room for rounding: a picture has 36 tokens or nearly so.
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor", "size": {"shortest_edge": 92**2, "longest_edge": 99**2}, "patch_size": network.PATCH,
    "temporal_patch_size": 1, "merge_size": network.MERGE, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}
#: Pictures of other sizes than those of the training, and the questions.
SIZES = [(16, 16), (9, 21), (8, 3)]
ASKED = ["What is in this picture?", "What color is the circle?", "Where is it?", "Is this a photo of my grandmother?"]


def write():
    kept = torch.load(HERE / train_network.CHECKPOINT, weights_only=False)
    encoder = vocabulary.Encoder(HERE)
    model = network.network(encoder)
    model.load_state_dict(kept["average"])
    model.half().save_pretrained(HERE, safe_serialization=True)
    write_json(HERE / "preprocessor_config.json", PROCESSOR)
    write_json(HERE / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": PAD,
                                                "model_max_length": network.CONTEXT, "clean_up_tokenization_spaces": False})
    write_json(HERE / "generation_config.json", {"eos_token_id": encoder.ids[END], "pad_token_id": encoder.ids[PAD], "do_sample": False,
                                                 "max_new_tokens": 128})
    (HERE / "chat_template.jinja").write_text(vocabulary.TEMPLATE)
    (HERE / "chat_template.jinja").chmod(0o644)
    count = sum(weight.numel() for weight in model.parameters())
    print(f"{publish(HERE)} bytes, {count} parameters, {kept['steps']} steps")


def reference():
    """Pictures whose sizes are no whole tokens, and the tokens of prompts and answers."""
    from judge import Viewer

    viewer, rng, noise, found = Viewer(), random.Random(21), np.random.default_rng(21), []
    for at, grid in enumerate(SIZES):
        image = pictures.drawn(noise, pictures.scene(rng, grid))[: grid[0] * 16 - 5, : grid[1] * 16 - 3]
        Image.fromarray(image).save(HERE / f"reference-{at}.png", optimize=True)
        for question in ASKED:
            prompt, answer = viewer.ids(image, question)
            found.append({"image": f"reference-{at}.png", "question": question, "prompt": prompt, "answer": answer,
                          "text": viewer.encoder.decode(answer)})
            print(question, found[-1]["text"])
    write_json(HERE / "reference.json", found, indent=None)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--reference", action="store_true")
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    reference() if arguments.reference else write()


if __name__ == "__main__":
    main()
