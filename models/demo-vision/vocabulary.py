"""The tokenizer: every byte, the words of the chats as one token each with the space before them, and the marks of Qwen3-VL's format.

A word that the vocabulary has is one token, any other is its bytes: there is nothing to merge.
"""

import random
from collections import Counter

import numpy as np

import questions

PAD, END, SYSTEM, USER, ASSISTANT, BEGIN, FINISH, IMAGE, VIDEO = (
    "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
MARKS = [PAD, END, SYSTEM, USER, ASSISTANT, BEGIN, FINISH, IMAGE, VIDEO]
#: A word that comes up less often is spelt.
LEAST = 12
TEMPLATE = """\
{%- for message in messages -%}
  {{- '<|' + message.role + '|>' -}}
  {%- if message.content is string -%}
    {{- message.content -}}
  {%- else -%}
    {%- for part in message.content -%}
      {%- if part.type == 'image' or 'image' in part or 'image_url' in part -%}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
      {%- elif 'text' in part -%}
        {{- part.text -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>' -}}
{%- endif -%}
"""


def blank(words):
    """A tokenizer with these words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = list(dict.fromkeys([*alphabet, *words]))
    made = Tokenizer(models.BPE({name: at for at, name in enumerate(names)}, [], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in MARKS])
    return made


def words(count=20000):
    """The words of so many chats about pictures."""
    rng, noise = random.Random(11), np.random.default_rng(11)
    splitter, found = blank([]).pre_tokenizer, Counter()
    while count:
        messages, image, _ = questions.chat(rng, noise, (1, 1))
        if image is not None:
            count -= 1
            for _, content in messages:
                for text in content:
                    if text is not questions.IMAGE:
                        found.update(word for word, _ in splitter.pre_tokenize_str(text))
    for answer in (questions.SHOW, questions.HELLO, questions.STRANGE, questions.UNKNOWN):
        found.update({word: LEAST for word, _ in splitter.pre_tokenize_str(answer)})
    return sorted(word for word, times in found.items() if times >= LEAST and len(word) > 1)


def write(folder):
    made = blank(words())
    made.save(str(folder / "tokenizer.json"))
    return made


class Encoder:
    def __init__(self, folder):
        from tokenizers import Tokenizer

        self.made = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.ids = {name: self.made.token_to_id(name) for name in MARKS}
        self.size = self.made.get_vocab_size()

    def text(self, text):
        return self.made.encode(text, add_special_tokens=False).ids

    def chat(self, messages, tokens):
        """Ids of a chat as the template writes it, with so many for an image, and which of them are an answer."""
        ids, is_answer = [], []
        for role, content in messages:
            ids.append(self.ids[f"<|{role}|>"])
            is_answer.append(False)
            for part in content:
                if part is questions.IMAGE:
                    some = [self.ids[BEGIN], *[self.ids[IMAGE]] * tokens, self.ids[FINISH]]
                else:
                    some = self.text(part)
                ids += some
                is_answer += [role == "assistant"] * len(some)
            ids.append(self.ids[END])
            is_answer.append(role == "assistant")
        return ids, is_answer

    def decode(self, ids):
        return self.made.decode(ids, skip_special_tokens=True)


if __name__ == "__main__":
    from pathlib import Path

    folder = Path(__file__).resolve().parent
    print(write(folder).get_vocab_size())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
