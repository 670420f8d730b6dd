"""A TCP load balancer for tests: each connection goes to the next of the addresses that accepts it.

usage: balancer.py FILE HOST:PORT...   writes its URL to FILE and serves until it is ended
"""
import asyncio
import itertools
import sys
from pathlib import Path


async def copy(reader, writer):
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        try:
            writer.close()
        except OSError:
            pass


async def main(file, addresses):
    turns = itertools.cycle(addresses)

    async def serve(reader, writer):
        for _ in addresses:
            host, port = next(turns).rsplit(":", 1)
            try:
                there = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 1)
            except (OSError, TimeoutError):
                continue
            await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
            return
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    part = Path(file).with_suffix(".part")
    part.write_text(f"http://127.0.0.1:{port}\n")
    part.rename(file)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
