"""Writes the trained network as a model folder, and the two files that our engine is measured with.

    python export.py              model.safetensors, config.json, tokenizer_config.json, generation_config.json
    python export.py --evaluation eval.jsonl and reference.jsonl (needs the model folder; runs transformers)
"""

import argparse
import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from corpus import evaluation
from corpus.frames import plain
from encoding import BOS, END, PAD
from network import Network, Shape

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../training"))
from files import write_json  # noqa: E402

HERE = Path(__file__).parent
REFERENCES = 100
REFERENCE_TOKENS = 64


def config(shape):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size, "intermediate_size": shape.intermediate_size, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context, "rope_theta": shape.rope_theta, "rms_norm_eps": shape.norm_eps, "hidden_act": "silu",
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PAD,
    }


TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|end|>", "pad_token": "<|pad|>", "model_max_length": 1024,
    "clean_up_tokenization_spaces": False, "add_bos_token": False, "add_eos_token": False,
}
GENERATION = {"bos_token_id": BOS, "eos_token_id": END, "pad_token_id": PAD, "do_sample": False, "max_new_tokens": 256}


def write_model(checkpoint):
    state = torch.load(checkpoint, map_location="cpu")
    layers = 1 + max(int(name.split(".")[1]) for name in state["network"] if name.startswith("layers."))
    network = Network(Shape(layers=layers))
    network.load_state_dict(state["network"])
    tensors = {name: tensor.half().contiguous() for name, tensor in network.state_dict_for_export().items()}
    save_file(tensors, HERE / "model.safetensors", metadata={"format": "pt"})
    (HERE / "model.safetensors").chmod(0o644)
    write_json(HERE / "config.json", config(network.shape))
    write_json(HERE / "tokenizer_config.json", TOKENIZER)
    write_json(HERE / "generation_config.json", GENERATION)
    print(f"{sum(t.numel() for t in tensors.values())} parameters after {state['step']} steps, {state['tokens']} tokens")


def as_file(prompt):
    """A prompt as clients write it: tool calls as objects, no marks."""
    messages = [{"role": m["role"], "content": plain(m["content"])} for m in prompt["messages"]]
    for message, source in zip(messages, prompt["messages"]):
        if "<tool_call>" in message["content"]:
            calls = [json.loads(part.split("</tool_call>")[0]) for part in source["content"].split("<tool_call>")[1:]]
            message |= {"content": "", "tool_calls": [{"type": "function", "function": call} for call in calls]}
    out = {"skill": prompt["skill"], "messages": messages, "tools": prompt["tools"], "expect": prompt["expect"]}
    return {key: value for key, value in out.items() if value or key != "tools"}


def lines(name, values):
    (HERE / name).write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def write_evaluation():
    from transformers import AutoTokenizer, LlamaForCausalLM

    prompts = [as_file(prompt) for prompt in evaluation.prompts()]
    lines("eval.jsonl", prompts)
    tokenizer = AutoTokenizer.from_pretrained(HERE)
    model = LlamaForCausalLM.from_pretrained(HERE, dtype=torch.float32)
    references = []
    for i in range(REFERENCES):
        prompt = prompts[i * len(prompts) // REFERENCES]
        ids = tokenizer.apply_chat_template(prompt["messages"], tools=prompt.get("tools"), add_generation_prompt=True, return_dict=True)["input_ids"]
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), max_new_tokens=REFERENCE_TOKENS, do_sample=False)[0, len(ids):].tolist()
        references.append({"prompt": ids, "greedy": out})
        print(f"{prompt['skill']}: {prompt['messages'][-1]['content']!r} -> {tokenizer.decode(out)!r}", flush=True)
    lines("reference.jsonl", references)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=HERE / "run/checkpoint.pt")
    parser.add_argument("--evaluation", action="store_true")
    arguments = parser.parse_args()
    if arguments.evaluation:
        write_evaluation()
    else:
        write_model(arguments.checkpoint)
