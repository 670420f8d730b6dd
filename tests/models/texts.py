"""Real weights of texts: `worker up` beside llama.cpp, embeddings beside transformers, and the speed of both sides.

    python tests/models/texts.py WORKER CACHE

CACHE holds `smollm2.gguf`, `gemma3.gguf`, the folder `minilm`, and `node`, in which the package node-llama-cpp is installed.
llama.cpp is the package's prebuilt library; transformers computes on JAX's CPU, in f32. Greedy texts have to be the same
token by token. Where one differs, the other side's token has to be nearly as likely, and the comparison continues after
llama.cpp's. Speeds are compared in turns with equal threads; the median of the rounds' ratios is printed beside the ratio
wanted, and fails the run only below a floor that a busy machine does not reach.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
THREADS = 2
TIE = 1e-3
# A gap that fails. Quantized products round their inputs differently in each library: over 113 likely tokens of SmolLM2
# the log probabilities of llama.cpp's own libraries with and without tiles are .083 apart in the mean and .57 at most,
# and ours .080 and .34 from the second. In 657 greedy tokens of both models 21 differed, by .107 at most.
NOISE = .2
EMBEDDING = 1e-5
LENGTH = 48
ROUNDS = 3
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius because",
    "Die Hauptstadt von Deutschland ist",
    "The three most important inventions of the nineteenth century were:\n1.",
]
SENTENCES = [
    "A cat sits on the mat.",
    "The kitten rests on the carpet.",
    "Quarterly earnings fell by 3 % — analysts had expected more.",
    "Où est la bibliothèque?",
    "a",
    " ".join(f"Line {number} of a longer text about lighthouses, storms and ships." for number in range(12)),
]
# The ratio wanted in each row, and the one below which the run fails: beside compilers, single rounds went down to 1.14, 1.06
# and 1.26.
SPEEDS = {"prefill 512": (1., .8), "decode 1": (1., .7), "decode 8": (1.5, 1.)}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "country": {"enum": ["France", "Germany", "Spain"]},
                   "people": {"type": "integer", "minimum": 0, "maximum": 100000000}},
    "required": ["city", "country", "people"],
    "additionalProperties": False,
}


class Up:
    """`worker up` with these models."""

    def __init__(self, worker, folder, models):
        command = [worker, "up", "--json", "--offline", "--quiet", "--listen", "127.0.0.1:0", "--data-dir", folder]
        command += [word for model in models for word in ("--model", model)]
        environment = {**os.environ, "MUSTER_ENGINE_THREADS": str(THREADS), "MUSTER_ENGINE_MAX_RUNNING": "1"}
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, env=environment)
        ready = json.loads(self.process.stdout.readline())
        self.url, self.key = ready["url"], ready["api_key"]

    def ask(self, route, **body):
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        request = urllib.request.Request(self.url + route, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=900) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{route} answered {error.code}: {error.read().decode()}") from None

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Peer:
    """llama.cpp with one file."""

    def __init__(self, modules, file):
        command = ["node", HERE / "peer.mjs", modules, file, str(THREADS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request, **given):
        self.process.stdin.write(json.dumps({"request": request, **given}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("llama.cpp ended without an answer")
        return json.loads(line)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Report:
    """Lines as they come, and the failures at the end."""

    def __init__(self):
        self.failures, self.missed = [], []

    def line(self, text, good=True):
        print(text if good else f"{text}: FAILED", flush=True)
        if not good:
            self.failures.append(text)


def continued(up, model, tokens, count):
    """Our greedy continuation: for each token its text, its log probability and those of the next likely tokens."""
    choice = up.ask("/v1/completions", model=model, prompt=tokens, max_tokens=count, temperature=0, logprobs=5)["choices"][0]
    found = choice["logprobs"]
    steps = list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]))
    return steps + [None] * (choice["finish_reason"] == "stop")


def same(ours, theirs):
    return ours == theirs or ours.startswith("bytes:") and "\ufffd" in theirs


def gap(peer, tokens, step, piece):
    """How much less likely one side's token is for the other side: the smaller of both."""
    likely = peer.ask("candidates", tokens=tokens, top=50)
    of_ours = [one["odds"] for one in likely if (one["ends"] if step is None else same(step[0], one["text"]))]
    gaps = [likely[0]["odds"] - of_ours[0]] if of_ours else []
    if step is not None:
        gaps += [step[1] - odds for text, odds in step[2].items() if piece is not None and same(text, piece)]
    return min(gaps, default=float("inf"))


def compare(up, peer, model, name, tokens, count, report):
    """Both greedy continuations of the same tokens, to the end."""
    theirs = peer.ask("greedy", tokens=tokens, count=count)
    pieces = theirs["pieces"] + [None] * (len(theirs["pieces"]) < count)
    gaps, place = [], 0
    first = None
    while place < len(pieces):
        before = tokens + theirs["tokens"][:place]
        ours = continued(up, model, before, len(pieces) - place)
        first = first or ours
        differs = next((at for at, (step, piece) in enumerate(zip(ours, pieces[place:]))
                        if (step is None) != (piece is None) or step is not None and not same(step[0], piece)), None)
        if differs is None:
            break
        place += differs
        gaps.append(gap(peer, tokens + theirs["tokens"][:place], ours[differs], pieces[place]))
        place += 1
    worst = max(gaps, default=0.)
    ties = sum(found <= TIE for found in gaps)
    report.line(f"{model}, {name}: {len(pieces)} tokens, {len(gaps)} differ, {ties} of them by {TIE:g} at most, "
                f"the largest gap {worst:.3f}", worst <= NOISE)
    if worst > NOISE:
        print(f"  llama.cpp: {''.join(theirs['pieces'])!r}\n  muster:    {''.join(step[0] for step in first if step)!r}")
    return gaps, len(pieces)


def long_prompt(up, model, length):
    """The tokens of a text of so many, with the question at its end."""
    rooms = (f"In room {number} of the museum hangs painting number {number * 7 % 997}, made in the year {1500 + number % 400}."
             for number in range(1, 1000))
    tokens = up.ask("/v1/tokenize", model=model, prompt=" ".join(rooms))["tokens"]
    end = up.ask("/v1/tokenize", model=model, prompt=" The museum's last room is", add_special_tokens=False)["tokens"]
    return tokens[:length - len(end)] + end


def texts(up, peer, model, has_chat, report):
    gaps, count = [], 0
    for prompt in PROMPTS:
        tokens = up.ask("/v1/tokenize", model=model, prompt=prompt)["tokens"]
        if tokens != peer.ask("tokenize", text=prompt):
            report.line(f"{model}: tokens of {prompt!r} are not llama.cpp's", False)
        found, more = compare(up, peer, model, repr(prompt[:24]), tokens, LENGTH, report)
        gaps, count = gaps + found, count + more
    for length in (700, 4000):
        tokens = long_prompt(up, model, length)
        found, more = compare(up, peer, model, f"a prompt of {len(tokens)} tokens", tokens, 24, report)
        gaps, count = gaps + found, count + more
    if has_chat:
        messages = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
        tokens = up.ask("/v1/tokenize", model=model, messages=messages)["tokens"]
        reply = up.ask("/v1/chat/completions", model=model, messages=messages, temperature=0, max_tokens=40)["choices"][0]
        text = reply["message"]["content"]
        report.line(f"{model}, chat: {text!r}", "Paris" in text and reply["finish_reason"] == "stop")
        found, more = compare(up, peer, model, "the chat's tokens", tokens, 40, report)
        gaps, count = gaps + found, count + more
        form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
        messages = [{"role": "user", "content": "Describe the city Paris as JSON with city, country and people."}]
        reply = up.ask("/v1/chat/completions", model=model, messages=messages, temperature=0, max_tokens=120, response_format=form)
        text = reply["choices"][0]["message"]["content"]
        report.line(f"{model}, schema: {text}", follows(text))
    print(f"{model}: {len(gaps)} of {count} greedy tokens differ from llama.cpp's", flush=True)


def follows(text):
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return (set(found) == {"city", "country", "people"} and isinstance(found["city"], str)
            and found["country"] in SCHEMA["properties"]["country"]["enum"] and type(found["people"]) is int)


def embeddings(up, folder, report):
    """Means of the last hidden states, of length 1."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from transformers import AutoTokenizer, FlaxBertModel, logging
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = FlaxBertModel.from_pretrained(folder)
    found = up.ask("/v1/embeddings", model=Path(folder).name, input=SENTENCES)["data"]
    worst = 0.
    for sentence, ours in zip(SENTENCES, found):
        hidden = np.asarray(network(**tokenizer([sentence], return_tensors="np")).last_hidden_state[0], np.float64)
        mean = hidden.mean(0)
        worst = max(worst, float(np.abs(mean / np.linalg.norm(mean) - np.array(ours["embedding"])).max()))
    report.line(f"minilm: {len(found)} embeddings, {worst:.1e} from those of transformers at most",
                len(found) == len(SENTENCES) and worst <= EMBEDDING)


def our_speed(worker, file):
    command = [worker, "bench", "text", file, "--prefill", "512", "--batch", "1,1,1,8", "--context", "128", "--repeat", "1", "--json"]
    environment = {**os.environ, "MUSTER_ENGINE_THREADS": str(THREADS), "RAYON_NUM_THREADS": str(THREADS)}
    runs = json.loads(subprocess.check_output([str(word) for word in command], env=environment))["runs"]
    return {name: statistics.median(run["tokens_per_second"]["median"] for run in runs if run["name"] == name) for name in SPEEDS}


def their_speed(modules, file):
    peer = Peer(modules, file)
    runs = peer.ask("speed", prompt=512, context=128, streams=[1, 1, 1, 8], steps=32)
    peer.stop()
    return {name: statistics.median(speed for key, speed in runs if key == name) for name in SPEEDS}


def speeds(worker, peers, name, file, report):
    rounds = []
    for number in range(ROUNDS):
        sides = [("muster", our_speed, worker)] + [(peer, their_speed, modules) for peer, modules in peers.items()]
        rounds.append({side: run(program, file) for side, run, program in (sides[::-1] if number % 2 else sides)})
    for row, (wanted, floor) in SPEEDS.items():
        best = max(peers, key=lambda peer: statistics.median(one[peer][row] for one in rounds))
        ratios = sorted(one["muster"][row] / one[best][row] for one in rounds)
        ratio = statistics.median(ratios)
        ours, theirs = (statistics.median(one[side][row] for one in rounds) for side in ("muster", best))
        if ratio < wanted:
            report.missed.append(f"{name} {row}: {ratio:.2f} of {wanted}")
        report.line(f"{name} {row}: {ours:.1f} tok/s, {best} {theirs:.1f}, ratio {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
                    f"wanted {wanted}", ratio >= floor)


def llama_cpp(cache):
    """The package as it comes and, where the processor has tiles, without the library that uses them: often faster."""
    peers = {"llama.cpp": cache / "node" / "node_modules"}
    if "amx_tile" in Path("/proc/cpuinfo").read_text():
        other = cache / "node-without-tiles"
        if not other.exists():
            shutil.copytree(cache / "node", cache / "node-without-tiles.new", symlinks=True)
            for library in (cache / "node-without-tiles.new").rglob("libggml-cpu-sapphirerapids.so"):
                library.unlink()
            (cache / "node-without-tiles.new").rename(other)
        peers["llama.cpp without tiles"] = other / "node_modules"
    return peers


def main(worker, cache):
    cache, report = Path(cache).resolve(), Report()
    peers = llama_cpp(cache)
    files = {"smollm2": True, "gemma3": False}
    with tempfile.TemporaryDirectory() as folder:
        up = Up(worker, folder, [*(cache / f"{model}.gguf" for model in files), cache / "minilm"])
        try:
            embeddings(up, str(cache / "minilm"), report)
            for model, has_chat in files.items():
                peer = Peer(list(peers.values())[-1], cache / f"{model}.gguf")
                texts(up, peer, model, has_chat, report)
                peer.stop()
        finally:
            up.stop()
    for model in files:
        speeds(worker, peers, model, cache / f"{model}.gguf", report)
    print("every speed wanted is reached" if not report.missed else "below the speed wanted: " + "; ".join(report.missed))
    if report.failures:
        raise SystemExit("\n".join(["failed:", *report.failures]))


if __name__ == "__main__":
    main(*sys.argv[1:])
