"""An assistant's side of `sightline mcp`, by the official SDK.

    client.py tour|read_only|refusals|cut ...     see the functions of these names
"""
import asyncio
import base64
import json
import os
import sys
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

PATIENCE = 60
WRITING = {"start_ingest", "start_analysis", "start_reasoning", "stop_run", "cancel_job"}
UNKNOWN = "run-" + "0" * 32


class Assistant:
    def __init__(self, client):
        self.client, self.called = client, set()

    async def call(self, tool, **arguments):
        self.called.add(tool)
        return await self.client.call_tool(tool, arguments)

    async def read(self, tool, **arguments):
        """What a call that ends well tells."""
        result = await self.call(tool, **arguments)
        text = result.content[-1].text
        assert not result.is_error, (tool, text)
        assert text.isprintable(), (tool, text)
        return json.loads(text)

    async def refused(self, tool, **arguments):
        result = await self.call(tool, **arguments)
        assert result.is_error, (tool, result)
        return result.content[0].text

    async def done(self, job):
        """A job once it has ended."""
        for _ in range(PATIENCE):
            told = await self.read("jobs", run_id=job["run_id"], job_id=job["job_id"], wait_seconds=5)
            if told["status"] not in ("queued", "running"):
                return told
        raise TimeoutError(told)


@asynccontextmanager
async def assistant(*options, mode="auto"):
    names = ("SIGHTLINE_SERVER", "SIGHTLINE_API_KEY")
    server = StdioServerParameters(
        command=os.environ["SIGHTLINE"],
        args=["mcp", *options],
        env={name: os.environ[name] for name in names},
    )
    async with Client(stdio_client(server), mode=mode) as client:
        yield Assistant(client)


async def tour(described):
    """Every tool, on a run that it has a model describe, and on one that it ingests."""
    async with assistant("--allow-write") as it:
        offered = {tool.name for tool in (await it.client.list_tools()).tools}
        asked = {"source_uri": "talk.mp4", "question": "What moves?", "model": "qwen3-vl-8b"}
        job = await it.read("start_reasoning", **asked, label="a \u202e label", max_frames=40)
        run = job["run_id"]
        job = await it.done(job)
        assert job["status"] == "succeeded" and job["result"]["decoded_frames"] == 40, job
        runs = (await it.read("list_runs", limit=1))["runs"]
        assert runs[0]["run_id"] == run and runs[0]["label"] == "a \u202e label", runs
        hit = (await it.read("search", query="RED VAN", run_id=run))["hits"][0]
        assert hit["run_id"] == run and "red van" in hit["snippet"], hit

        told = await it.read("read_timeline", run_id=run)
        assert told["frames"]["analysed"] == 40, told
        said = [entry["description"] for entry in told["timeline"] if "description" in entry]
        assert said[0] == described, said
        short = await it.read("read_timeline", run_id=run, to_ms=-1)
        assert short["timeline"] == [], short
        still = await it.call("look_at_keyframe", run_id=run, at_ms=0, max_edge=160)
        picture = base64.b64decode(still.content[0].data)
        assert still.content[0].mime_type == "image/jpeg" and picture[:2] == b"\xff\xd8"
        assert json.loads(still.content[1].text)["pts_ms"] == 0
        frame = await it.read("why_frame", run_id=run, frame_index=0)
        assert frame["kept"] and frame["reason"] == "initial_frame", frame
        answer = await it.read("ask_model", run_id=run, at_ms=0, question="Which colour?")
        assert answer["answer"] and answer["model"] == "qwen3-vl-8b", answer

        job = await it.read("start_ingest", source_uri="film.mp4", max_frames=250)
        film = job["run_id"]
        assert (await it.done(job))["status"] == "succeeded"
        job = await it.read("start_analysis", run_id=film, model="qwen3-vl-8b")
        job = await it.done(job)
        assert job["status"] == "succeeded" and job["result"]["generated"] == 250, job
        # What does not fit is summed up, and can be asked for.
        wide = await it.read("read_timeline", run_id=film, max_chars=40000)
        brief = await it.read("read_timeline", run_id=film, max_chars=1000)
        assert len(json.dumps(brief)) < 1600 and "from_ms" in brief["left_out"], brief
        assert wide["counts"] == brief["counts"], (wide["counts"], brief["counts"])
        span = brief["spans"][-1]
        part = await it.read("read_timeline", run_id=film, from_ms=span["from_ms"])
        assert part["timeline"][-1] == wide["timeline"][-1], (part, wide)
        cuts = await it.read("read_timeline", run_id=film, event_type="scene_cut")
        assert {entry["marker"] for entry in cuts["timeline"]} == {"scene_cut"}, cuts

        job = await it.read("start_ingest", run_id=film, source_uri="long.mp4", max_frames=500000)
        assert (await it.read("cancel_job", run_id=film, job_id=job["job_id"]))["status"] == "cancelled"
        assert (await it.read("stop_run", run_id=film))["status"] == "cancelled"
        assert "409" in (words := await it.refused("stop_run", run_id=film)), words

        before = await it.read("list_runs")
        for source in ("/etc/passwd", "no such file.mp4"):
            words = await it.refused("start_ingest", source_uri=source)
            assert "source_uri" in words, words
        assert await it.read("list_runs") == before, "a source that is refused leaves no run"
        assert it.called == offered, it.called ^ offered


async def read_only():
    """Without leave to write there is nothing to write with, in either protocol."""
    for mode in ("auto", "legacy"):
        async with assistant(mode=mode) as it:
            tools = (await it.client.list_tools()).tools
            assert all(tool.annotations.read_only_hint for tool in tools), tools
            assert len(tools) == 7 and not WRITING & {tool.name for tool in tools}, tools
            for tool in WRITING:
                try:
                    raise AssertionError(await it.call(tool, run_id=UNKNOWN))
                except MCPError as error:
                    assert "no tool" in str(error), error


async def refusals(table):
    """Calls that cannot be, each with words of what is told then."""
    async with assistant() as it:
        for tool, arguments, words in json.loads(table):
            told = await it.refused(tool, **arguments)
            assert words in told, (tool, told)
            assert os.environ["SIGHTLINE_API_KEY"] not in told


async def cut(run):
    """A call that is cancelled, one whose server is killed, and one after it came back; told line by line."""
    async with assistant() as it:
        ask = {"run_id": run, "at_ms": 0, "question": "Anything?", "model": "qwen3-vl-8b"}
        call = asyncio.create_task(it.call("ask_model", **ask))
        await told_to("cancel")
        call.cancel()
        print("cancelled", flush=True)
        runs = await it.read("list_runs")
        assert runs["runs"][0]["run_id"] == run, runs
        await told_to("again")
        call = asyncio.create_task(it.refused("ask_model", **ask))
        await told_to("killed")
        assert "no answer from" in (words := await call), words
        assert "Is the server running?" in (words := await it.refused("list_runs")), words
        print("refused", flush=True)
        await told_to("back")
        assert (await it.read("list_runs"))["runs"][0]["run_id"] == run


async def told_to(word):
    line = await asyncio.to_thread(sys.stdin.readline)
    assert line.strip() == word, line


part = {"tour": tour, "read_only": read_only, "refusals": refusals, "cut": cut}[sys.argv[1]]
asyncio.run(asyncio.wait_for(part(*sys.argv[2:]), 5 * PATIENCE))
