"""Publishes a drawn picture over WHIP with aiortc, a WebRTC stack that shares no code with the server's.

The picture is red with a moving bar, and a green chessboard from the middle on: one hard cut. Prints one JSON
object with the statuses of the server and ends with 0, or says on stderr why not.
"""

import argparse
import asyncio
import fractions
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy
from aiortc import RTCPeerConnection, RTCRtpSender, RTCSessionDescription, VideoStreamTrack
from av import VideoFrame

RATE = 25
RED, GREEN, DARK = (200, 40, 40), (60, 200, 60), (10, 50, 10)
SQUARE = 56


class Drawn(VideoStreamTrack):
    """A bar that moves over red, over a chessboard from the middle on."""

    def __init__(self, width: int, height: int, frames: int) -> None:
        super().__init__()
        self.size = (height, width)
        self.frames = frames
        self.index = 0
        self.started = time.monotonic()
        self.done = asyncio.Event()

    async def recv(self) -> VideoFrame:
        await asyncio.sleep(max(0.0, self.started + self.index / RATE - time.monotonic()))
        picture = numpy.empty((*self.size, 3), numpy.uint8)
        if self.index * 2 < self.frames:
            picture[:] = RED
        else:
            rows, columns = numpy.indices(self.size) // SQUARE
            picture[:] = DARK
            picture[(rows + columns) % 2 == 1] = GREEN
        left = self.index * 4 % self.size[1]
        picture[:, left : left + 16] = 255
        frame = VideoFrame.from_ndarray(picture, format="rgb24")
        frame.pts, frame.time_base = self.index * 90_000 // RATE, fractions.Fraction(1, 90_000)
        self.index += 1
        if self.index >= self.frames:
            self.done.set()
        return frame


def trickled(sdp: str) -> tuple[str, str]:
    """The offer without its candidates, and the fragment that brings them (RFC 8840)."""
    lines = sdp.splitlines()
    late = ("a=candidate:", "a=end-of-candidates")
    kept = [line for line in lines if not line.startswith(late)]
    first = lambda start: next(line for line in lines if line.startswith(start))
    head = [first(start) for start in ("a=ice-ufrag:", "a=ice-pwd:", "m=video", "a=mid:")]
    candidates = [line for line in lines if line.startswith("a=candidate:")]
    ends = ["a=end-of-candidates", ""]
    return "\r\n".join([*kept, ""]), "\r\n".join([*head, *candidates, *ends])


def ask(method: str, url: str, key: str, body: bytes = b"", **headers: str) -> tuple[int, dict, str]:
    """The status, headers and body of an answer, a refusal too."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body or None, {"authorization": f"Bearer {key}", **named}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, dict(refusal.headers), refusal.read().decode()


async def publish(arguments: argparse.Namespace) -> dict:
    peer = RTCPeerConnection()
    track = Drawn(arguments.width, arguments.height, int(arguments.seconds * RATE))
    transceiver = peer.addTransceiver(track, direction="sendonly")
    wanted = f"video/{arguments.codec}".lower()
    known = RTCRtpSender.getCapabilities("video").codecs
    transceiver.setCodecPreferences([codec for codec in known if codec.mimeType.lower() == wanted])
    await peer.setLocalDescription(await peer.createOffer())
    connected = asyncio.Event()

    @peer.on("connectionstatechange")
    def _() -> None:
        if peer.connectionState == "connected":
            connected.set()

    attach = {"x-attach-config": arguments.attach} if arguments.attach else {}
    offer, candidates = trickled(peer.localDescription.sdp)
    status, headers, text = ask(
        "POST", arguments.url, arguments.key, offer.encode(), content_type="application/sdp", **attach
    )
    headers = {name.lower(): value for name, value in headers.items()}
    said = {"status": status, "run": headers.get("x-service-run-id"), "text": text if status != 201 else ""}
    if status != 201:
        return said
    session = urllib.parse.urljoin(arguments.url, headers["location"])
    said["trickled"], _, _ = ask(
        "PATCH",
        session,
        arguments.key,
        candidates.encode(),
        content_type="application/trickle-ice-sdpfrag",
        if_match=headers["etag"],
    )
    await peer.setRemoteDescription(RTCSessionDescription(text, "answer"))
    await asyncio.wait_for(connected.wait(), 20)
    await asyncio.wait_for(track.done.wait(), arguments.seconds * 4 + 20)
    await asyncio.sleep(0.5)
    said["ended"], _, _ = ask("DELETE", session, arguments.key)
    await peer.close()
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--key", required=True)
    parser.add_argument("--codec", default="VP8")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--attach", default="")
    print(json.dumps(asyncio.run(publish(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
