"""Asks a server over HTTP/3 with aioquic: JSON, an upload, a download, a range, live events.

Arguments: port, certificate, key of the API, a file to upload. Ends with 0 when all was well.
"""

import asyncio
import json
import pathlib
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.streams = {}

    def quic_event_received(self, event):
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            for stream, queue in self.streams.items():
                if getattr(event, "stream_id", stream) == stream:
                    queue.put_nowait(None)
            return
        for received in self.http.handle_event(event):
            if isinstance(received, (HeadersReceived, DataReceived)):
                self.streams[received.stream_id].put_nowait(received)

    def begin(self, method, path, key, headers=(), body=b""):
        stream = self._quic.get_next_available_stream_id()
        self.streams[stream] = asyncio.Queue()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost")]
        head += [(b":path", path.encode()), (b"x-api-key", key.encode()), *headers]
        self.http.send_headers(stream, head, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return stream

    async def parts(self, stream):
        while True:
            part = await asyncio.wait_for(self.streams[stream].get(), 60)
            assert part is not None, "reset"
            yield part
            if part.stream_ended:
                return

    async def ask(self, *args, **kwargs):
        headers, body = {}, b""
        async for part in self.parts(self.begin(*args, **kwargs)):
            if isinstance(part, HeadersReceived):
                headers = {name.decode(): value.decode() for name, value in part.headers}
            else:
                body += part.data
        return headers, body


async def live(client, key, run):
    """Each event of a run comes when it happens, and the stream ends with the run."""
    stream, told = client.begin(b"GET", f"/v1/runs/{run}/events/stream", key), ""
    stopped = False
    async for part in client.parts(stream):
        if isinstance(part, DataReceived):
            told += part.data.decode()
        if "event: run_created\n" in told and not stopped:
            stopped = True
            headers, _ = await client.ask(b"POST", f"/v1/runs/{run}/stop", key, JSON, b"{}")
            assert headers[":status"] == "200", headers
    assert "event: stop_requested\n" in told, told


JSON = [(b"content-type", b"application/json")]


async def main(port, certificate, key, source):
    tls = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    tls.load_verify_locations(certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with connect("127.0.0.1", int(port), configuration=tls, create_protocol=Client) as client:
        headers, body = await client.ask(b"GET", "/v1/health", key)
        assert headers[":status"] == "200" and "date" in headers, headers
        assert json.loads(body)["status"] == "ok", body
        headers, _ = await client.ask(b"GET", "/v1/runs", "stranger")
        assert headers[":status"] == "401", headers
        headers, body = await client.ask(b"POST", "/v1/runs", key, JSON, b"{}")
        assert headers[":status"] == "200", headers
        run = json.loads(body)["run_id"]
        content = pathlib.Path(source).read_bytes()
        part = b'content-disposition: form-data; name="file"; filename="clip.mp4"'
        form = b"--x\r\n" + part + b"\r\n\r\n" + content + b"\r\n--x--\r\n"
        kind = [(b"content-type", b"multipart/form-data; boundary=x")]
        headers, body = await client.ask(b"POST", "/v1/upload", key, kind, form)
        assert headers[":status"] == "200", (headers, body)
        kept = json.loads(body)
        assert kept["bytes"] == len(content), kept
        path = f"/v1/files/{kept['file_name']}"
        headers, body = await client.ask(b"GET", path, key)
        assert (headers[":status"], body == content) == ("200", True), headers
        headers, body = await client.ask(b"GET", path, key, [(b"range", b"bytes=1000-69999")])
        assert (headers[":status"], body == content[1000:70000]) == ("206", True), headers
        many = [client.ask(b"GET", "/v1/limits", key) for _ in range(100)]
        for headers, _ in await asyncio.gather(*many):
            assert headers[":status"] == "200", headers
        await live(client, key, run)
    print("all was well")


asyncio.run(main(*sys.argv[1:]))
