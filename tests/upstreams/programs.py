"""Other programs behind `worker up`: each is asked directly and through the worker, and the answers have to be the same.

    python tests/upstreams/programs.py WORKER CACHE

CACHE is the folder of `check`. Greedy texts and counts of tokens are compared for plain and streamed chats and completions, log
probabilities to 1e-3, and vectors to 1e-5; schemas have to hold, and so have demanded calls of tools, or an error says so;
a client that leaves ends the work within a second or two; a program that is killed is a typed error after the first token, its
model is not listed while it is away, and comes back with it; a text goes on after the owner's pause.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

LINE = [{"role": "user", "content": "Name three colors of the rainbow, with one sentence about each."}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}}}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url, body=None, key="none", method=None):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=300) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, {"text": text}


def events(url, body, key="none"):
    """The events of a stream as they come."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps({**body, "stream": True}).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as reply:
        for line in reply:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])


def until(what, seconds, check):
    """Waits for a true value; the value and how long it took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        found = check()
        if found:
            return found, time.monotonic() - began
        time.sleep(0.05)
    raise SystemExit(f"waited {seconds} s for {what}")


class Program:
    def __init__(self, name, command, ready):
        self.name, self.command, self.ready = name, command, ready
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        words = [str(word).replace("PORT", str(self.port)) for word in self.command]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}")
            try:
                return ask(self.url + self.ready)[0] == 200
            except OSError:
                return False

        until(f"{self.name} to answer", 120, answers)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Up:
    """`worker up` with the models of these sections."""

    def __init__(self, worker, folder, sections):
        file = Path(folder, "worker.toml")
        file.write_text(sections)
        self.socket_options = ["--config", str(file), "--data-dir", folder]
        command = [worker, "up", "--config", file, "--json", "--offline", "--listen", "127.0.0.1:0", "--data-dir", folder]
        log = open(Path(folder, "log"), "w")
        self.worker = worker
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=log)
        ready = json.loads(self.process.stdout.readline())
        self.url, self.key = ready["url"], ready["api_key"]

    def ask(self, route, body=None):
        return ask(self.url + route, body, self.key)

    def events(self, route, body):
        return events(self.url + route, body, self.key)

    def lists(self, model):
        return self.ask(f"/v1/models/{model}")[0] == 200

    def command(self, *words):
        return subprocess.run([self.worker, *words, *self.socket_options], capture_output=True, text=True)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Report:
    def __init__(self):
        self.failed = []

    def row(self, program, what, good, more=""):
        mark = "ok" if good else "FAILED"
        print(f"{program:18} {what:44} {mark:7} {more}".rstrip(), flush=True)
        if not good:
            self.failed.append(f"{program}: {what}")


def text_of(reply):
    return reply["choices"][0]["message"]["content"]


def compare_texts(report, program, up):
    name, greedy = program.name, {"temperature": 0, "max_tokens": 48}
    chat = {"messages": LINE, **greedy}
    status, direct = ask(program.url + "/v1/chat/completions", {"model": "theirs", **chat})
    assert status == 200, direct
    status, ours = up.ask("/v1/chat/completions", {"model": "theirs", **chat})
    report.row(name, "a chat", status == 200 and text_of(ours) == text_of(direct), "" if status == 200 else ours)
    counts = lambda reply: [reply["usage"][part] for part in ("prompt_tokens", "completion_tokens")]
    report.row(name, "its counts", status == 200 and counts(ours) == counts(direct), f"{counts(direct)}")
    streamed = list(up.events("/v1/chat/completions", {"model": "theirs", **chat, "stream_options": {"include_usage": True}}))
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in streamed if event["choices"])
    report.row(name, "a streamed chat", text == text_of(direct) and len(streamed) > 20, f"{len(streamed)} events")
    usage = [event["usage"] for event in streamed if event.get("usage")]
    report.row(name, "counts of a stream", usage and usage[-1]["completion_tokens"] == counts(direct)[1])
    raw = {"model": "theirs", "prompt": "Once upon a time, in a small village by the sea,", **greedy}
    direct = ask(program.url + "/v1/completions", raw)[1]["choices"][0]["text"]
    status, ours = up.ask("/v1/completions", raw)
    report.row(name, "a completion", status == 200 and ours["choices"][0]["text"] == direct, "" if status == 200 else ours)
    stopped = {"model": "theirs", **chat, "stop": ["."]}
    status, ours = up.ask("/v1/chat/completions", stopped)
    direct = text_of(ask(program.url + "/v1/chat/completions", stopped)[1])
    good = status == 200 and text_of(ours) == direct and "." not in text_of(ours)
    report.row(name, "a stop string", good, "" if status == 200 else ours)
    status, ours = up.ask("/v1/messages", {"model": "theirs", "max_tokens": 48, "temperature": 0, "messages": LINE})
    report.row(name, "Anthropic's messages", status == 200 and len(ours["content"][0]["text"]) > 20, "" if status == 200 else ours)
    status, ours = up.ask("/api/chat", {"model": "theirs", "stream": False, "messages": LINE, "options": {"temperature": 0, "num_predict": 48}})
    report.row(name, "Ollama's chat", status == 200 and len(ours["message"]["content"]) > 20, "" if status == 200 else ours)


def compare_forms(report, program, up):
    name = program.name
    chat = {"model": "theirs", "messages": LINE, "temperature": 0, "max_tokens": 64}
    schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    status, ours = up.ask("/v1/chat/completions", {**chat, "response_format": schema})
    try:
        good = status == 200 and set(json.loads(text_of(ours))) == {"city", "size"}
    except ValueError:
        good = False
    report.row(name, "a schema", good, text_of(ours)[:60] if status == 200 else ours)
    demanded = {**chat, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    status, ours = up.ask("/v1/chat/completions", demanded)
    try:
        call = ours["choices"][0]["message"]["tool_calls"][0]["function"]
        good = call["name"] == "weather" and "city" in json.loads(call["arguments"])
    except (KeyError, IndexError, TypeError, ValueError):
        # A program may know no tools with this model, but not in silence.
        call = ours.get("error", {}).get("message", ours)
        good = status >= 400 and "tool" in str(call)
    report.row(name, "a demanded call of a tool", good, json.dumps(call)[:100])
    probed = {**chat, "max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    direct = ask(program.url + "/v1/chat/completions", probed)[1]["choices"][0]["logprobs"]["content"]
    status, ours = up.ask("/v1/chat/completions", probed)
    if status == 200:
        found = ours["choices"][0]["logprobs"]["content"]
        gaps = [abs(a["logprob"] - b["logprob"]) for a, b in zip(found, direct, strict=True)]
        same = [a["token"] for a in found] == [b["token"] for b in direct]
        report.row(name, "log probabilities", same and max(gaps) < 1e-3, f"{max(gaps):.1e} apart at most")
    else:
        report.row(name, "log probabilities", False, ours)


def compare_vectors(report, program, up):
    body = {"model": "vectors", "input": ["A cat sits on the mat.", "Où est la bibliothèque?"]}
    status, ours = up.ask("/v1/embeddings", body)
    direct = ask(program.url + "/v1/embeddings", {**body, "model": "theirs"})[1]
    if status != 200:
        return report.row(program.name, "embeddings", False, ours)
    pairs = zip((x for row in ours["data"] for x in row["embedding"]), (x for row in direct["data"] for x in row["embedding"]))
    gap = max(abs(a - b) for a, b in pairs)
    report.row(program.name, "embeddings", gap < 1e-5, f"{gap:.1e} apart at most")


def compare_ends(report, program, up):
    """Clients that leave, and a program that dies."""
    name = program.name
    long = {"model": "theirs", "messages": LINE, "temperature": 0.8, "max_tokens": 1500}

    def busy():
        status, slots = ask(program.url + "/slots")
        return status == 200 and any(slot["is_processing"] for slot in slots)

    if ask(program.url + "/slots")[0] == 200:
        stream = up.events("/v1/chat/completions", long)
        next(stream), next(stream)
        assert busy(), "the program is to be at work"
        stream.close()
        _, took = until("the program to stop", 10, lambda: not busy())
        report.row(name, "a client that leaves", took < 2, f"{took:.1f} s")
    stream = up.events("/v1/chat/completions", long)
    seen = [next(stream) for _ in range(5)]
    program.stop()
    rest = list(stream)
    errors = [event["error"] for event in rest if "error" in event]
    report.row(name, "a program that dies in a stream", len(errors) == 1, errors[0]["message"] if errors else rest[-1:])
    _, took = until("the model to leave", 20, lambda: not up.lists("theirs"))
    report.row(name, "its model leaves", took < 5, f"{took:.1f} s")
    program.start()
    _, took = until("the model to come back", 20, lambda: up.lists("theirs"))
    report.row(name, "its model comes back", took < 5, f"{took:.1f} s")


def compare_pause(report, program, up):
    """A text that the owner interrupts goes on afterwards from its words."""
    body = {"model": "theirs", "messages": LINE, "temperature": 0, "max_tokens": 160}
    whole = text_of(up.ask("/v1/chat/completions", body)[1])
    stream, text = up.events("/v1/chat/completions", body), ""
    for count, event in enumerate(stream):
        if event.get("error"):
            return report.row(program.name, "a text over a pause", False, event["error"])
        if count == 12:
            paused = up.command("pause", "--for", "2s")
            if paused.returncode != 0:
                return report.row(program.name, "a text over a pause", False, paused.stderr)
        if event["choices"]:
            text += event["choices"][0]["delta"].get("content") or ""
    beginning = os.path.commonprefix([text, whole])
    # A program need not make the same tokens of the words that it made.
    good = len(text) > len(whole) / 2 and len(beginning) > 30
    report.row(program.name, "a text over a pause", good, "the same text" if text == whole else f"{len(beginning)} of {len(whole)} letters")


def main():
    worker, cache = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    model = next(cache.glob("model/*/SmolLM2-135M-Instruct.Q4_1.gguf"))
    server = cache / "sources/vendor/llama.cpp/build/bin/llama-server"
    native = [server, "-m", model, "--host", "127.0.0.1", "--port", "PORT", "-c", 8192, "-np", 4, "-t", 1, "--alias", "theirs", "--slots", "--jinja"]
    python = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--host", "127.0.0.1", "--port", "PORT",
              "--n_ctx", 4096, "--n_threads", 1, "--model_alias", "theirs", "--logits_all", "true"]
    report = Report()
    for name, command, ready in [("llama.cpp's server", native, "/health"), ("llama-cpp-python", python, "/v1/models")]:
        program = Program(name, command, ready)
        vectors = Program(f"{name}, vectors", [*native, "--embeddings", "--pooling", "mean"], "/health") if command is native else None
        sections = f'[models.theirs]\nupstream = {{ url = "{program.url}", tools = true }}\n'
        if vectors:
            sections += f'[models.vectors]\nupstream = {{ url = "{vectors.url}", kind = "embedding" }}\n'
        with tempfile.TemporaryDirectory() as folder:
            up = Up(worker, folder, sections)
            try:
                until("the model to be listed", 30, lambda: up.lists("theirs"))
                listed = up.ask("/v1/models/theirs")[1]
                report.row(name, "the list of models", True, f"{listed.get('upstream')}, {listed.get('max_context_length')} tokens")
                compare_texts(report, program, up)
                compare_forms(report, program, up)
                if vectors:
                    until("the vectors to be listed", 30, lambda: up.lists("vectors"))
                    compare_vectors(report, vectors, up)
                compare_ends(report, program, up)
                compare_pause(report, program, up)
            finally:
                up.stop()
                program.stop()
                if vectors:
                    vectors.stop()
    if report.failed:
        raise SystemExit("failed: " + "; ".join(report.failed))


if __name__ == "__main__":
    main()
