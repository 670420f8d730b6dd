"""What passing a request on costs: streams of one model by the leader of a cluster and by a node that follows, in turns.

usage: cluster_hop.py LEADER_URL FOLLOWER_URL KEY [ROUNDS]

`tests/cluster start 2` prints the URLs and the key. Each round asks both for a stream of 48 tokens of demo-text over a connection that
is open already, the first in each round by turns. Printed are medians and 99th percentiles of the time to the first token and of the
time between two tokens, and the differences.
"""
import http.client
import json
import statistics
import sys
import time
from urllib.parse import urlsplit


class Door:
    def __init__(self, url, key):
        place = urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname, place.port)
        self.headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self.firsts, self.gaps = [], []

    def stream(self):
        body = {
            "model": "demo-text",
            "stream": True,
            "max_tokens": 48,
            "seed": 7,
            "messages": [{"role": "user", "content": "Tell me a story."}],
        }
        began = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), self.headers)
        response = self.connection.getresponse()
        assert response.status == 200, response.read()
        last = None
        for line in response:
            if not line.startswith(b"data: {") or b'"content":"' not in line:
                continue
            now = time.perf_counter()
            if last is None:
                self.firsts.append(now - began)
            else:
                self.gaps.append(now - last)
            last = now

    def figures(self, times):
        times = sorted(times)
        return statistics.median(times) * 1e3, times[int(len(times) * 0.99)] * 1e3


def main(leader, follower, key, rounds="200"):
    doors = [Door(leader, key), Door(follower, key)]
    for door in doors:
        door.stream()
        door.firsts.clear(), door.gaps.clear()
    for round in range(int(rounds)):
        for door in doors if round % 2 else reversed(doors):
            door.stream()
    for what in ("firsts", "gaps"):
        (p50, p99), (there50, there99) = [door.figures(getattr(door, what)) for door in doors]
        name = {"firsts": "first token", "gaps": "between tokens"}[what]
        print(
            f"{name}: leader p50 {p50:.2f} ms p99 {p99:.2f} ms, follower p50 {there50:.2f} ms p99 {there99:.2f} ms,"
            f" more p50 {there50 - p50:+.2f} ms p99 {there99 - p99:+.2f} ms"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
