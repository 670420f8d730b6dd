"""Tools of the Model Context Protocol by the official client, over HTTP and from `worker mcp`."""

import asyncio
import base64
import os
import pathlib
import tempfile

import httpx2
from harness import KEY, URL, run
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

WORKER = os.environ["MUSTER_TEST_WORKER"]
TOOLS = {
    "generate_image", "edit_image", "generate_video", "generate_music", "generate_speech",
    "transcribe", "embed", "rerank", "list_models",
}


def over_http(key=KEY, **options):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120)
    return Client(streamable_http_client(f"{URL}/mcp", http_client=http), **options)


def from_worker(folder):
    arguments = ["mcp", "--url", URL, "--key", KEY, "--folder", folder]
    return Client(StdioServerParameters(command=WORKER, args=arguments))


def kinds(result):
    assert not result.is_error, result
    return [block.type for block in result.content]


def check_tools_over_http():
    async def check():
        async with over_http() as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == TOOLS, sorted(tools)
            steps = tools["generate_image"].input_schema["properties"]["steps"]
            assert steps["minimum"] == 1 and steps["maximum"] > 1, steps
            models = await session.call_tool("list_models", {})
            assert any(model["id"] == "demo-image" for model in models.structured_content["data"]), models
            told = []

            async def progress(done, total, message):
                told.append((done, total))

            wanted = {"prompt": "a red circle", "seed": 1, "steps": 60}
            drawn = await session.call_tool("generate_image", wanted, progress_callback=progress)
            assert all(0 <= done <= total == 100 for done, total in told), told
            assert kinds(drawn) == ["image", "resource_link", "text"], kinds(drawn)
            image = drawn.content[0]
            assert image.mime_type == "image/webp" and base64.b64decode(image.data)[8:12] == b"WEBP"
            edited = await session.call_tool(
                "edit_image", {"prompt": "a blue circle", "image": image.data, "steps": 4}
            )
            assert kinds(edited)[0] == "image"
            refused = await session.call_tool("generate_image", {"prompt": "a", "steps": 100000})
            assert refused.is_error and "steps" in refused.content[0].text, refused

    asyncio.run(check())


def check_the_handshake_of_earlier_versions():
    async def check():
        async with over_http(mode="legacy") as session:
            assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS

    asyncio.run(check())


def check_a_wrong_key_opens_nothing():
    async def check():
        async with over_http("wrong"):
            pass

    try:
        asyncio.run(check())
    except BaseException:
        return
    raise AssertionError("a wrong key was let in")


def check_files_of_a_folder():
    async def check(folder):
        async with from_worker(folder) as session:
            assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS
            spoken = await session.call_tool("generate_speech", {"input": "one two three", "response_format": "wav"})
            assert kinds(spoken) == ["text"], spoken
            sound = pathlib.Path(spoken.content[0].text.removeprefix("Saved "))
            assert sound.parent == pathlib.Path(folder).resolve() and sound.read_bytes()[:4] == b"RIFF"
            heard = await session.call_tool("transcribe", {"file": sound.name})
            assert "text" in heard.structured_content, heard
            drawn = await session.call_tool("generate_image", {"prompt": "a green square", "n": 2, "seed": 3})
            assert kinds(drawn).count("image") == 2, kinds(drawn)
            files = sorted(path.suffix for path in pathlib.Path(folder).iterdir())
            assert files == [".wav", ".webp", ".webp"], files
            outside = await session.call_tool("transcribe", {"file": "/etc/hostname"})
            assert outside.is_error and "outside the shared folder" in outside.content[0].text, outside

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(folder))


def check_videos_and_music_of_a_folder():
    async def check(folder):
        async with from_worker(folder) as session:
            filmed = await session.call_tool("generate_video", {"prompt": "a red circle moves right", "seed": 1})
            composed = await session.call_tool("generate_music", {"prompt": "a slow melody", "seconds": 3})
            files = sorted(path.name.split("-")[0] for path in pathlib.Path(folder).iterdir())
            assert files == ["music", "video"], (files, filmed, composed)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(folder))


run(globals())
