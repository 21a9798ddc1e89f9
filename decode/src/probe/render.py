#!/usr/bin/env python3
"""Renders the clips of the decoder probe: `render.py DIR`, with ffmpeg and its encoders on PATH.

A disc that moves over a gradient, with B pictures where a codec has them. The size is one that every
device takes. The digests in `probe.rs` are those of these clips. The longer ones are for tests of
files: of several GOPs, and of one that is cut into pieces.
"""

import math
import pathlib
import subprocess
import sys

WIDTH, HEIGHT, PERIOD = 256, 192, 16

# Name of the file, bits of a sample, pictures, arguments of ffmpeg.
CLIPS = [
    ("h264.mp4", 8, 16, "-c:v libx264 -preset slower -crf 30 -bf 3 -g 16 -threads 1"),
    ("h265.mp4", 8, 16, "-c:v libx265 -preset medium -crf 32 -x265-params log-level=none:pools=1:info=0"),
    ("h265-10.mp4", 10, 16, "-c:v libx265 -preset medium -crf 32 -x265-params log-level=none:pools=1:info=0"),
    ("vp8.webm", 8, 16, "-c:v libvpx -b:v 60k -cpu-used 0 -threads 1"),
    ("vp9.webm", 8, 16, "-c:v libvpx-vp9 -crf 45 -b:v 0 -cpu-used 2 -threads 1"),
    ("vp9-10.webm", 10, 16, "-c:v libvpx-vp9 -profile:v 2 -crf 45 -b:v 0 -cpu-used 2 -threads 1"),
    ("av1.mp4", 8, 16, "-c:v libaom-av1 -crf 45 -b:v 0 -cpu-used 6 -threads 1"),
    ("av1-10.mp4", 10, 16, "-c:v libaom-av1 -crf 45 -b:v 0 -cpu-used 6 -threads 1"),
    ("mpeg4.mp4", 8, 16, "-c:v mpeg4 -q:v 12 -bf 2 -g 16 -threads 1"),
    ("mjpeg.mkv", 8, 16, "-c:v mjpeg -q:v 20 -threads 1 -pix_fmt yuvj420p"),
    ("gops.mp4", 8, 96, "-c:v libx264 -preset slower -crf 40 -bf 3 -g 8 -threads 1"),
    ("gops-10.mp4", 10, 48, "-c:v libx265 -preset medium -crf 40 -x265-params log-level=none:pools=1:info=0:keyint=8:min-keyint=8:open-gop=0"),
    ("long.mp4", 8, 200, "-c:v libx264 -preset slower -crf 40 -bf 3 -g 999 -threads 1"),
]


def plane(width, height, scale, at, slope, inside):
    """A gradient with a disc at `at`, in samples of eight bits times `scale`."""
    x0, y0, radius = at
    for y in range(height):
        for x in range(width):
            is_inside = (x - x0) ** 2 + (y - y0) ** 2 < radius**2
            value = inside if is_inside else 40 + slope[0] * x / width + slope[1] * y / height
            yield int(value * scale)


def picture(index, bits):
    scale = 1 << (bits - 8)
    angle = 2 * math.pi * index / PERIOD
    x, y = WIDTH * (0.5 + 0.3 * math.cos(angle)), HEIGHT * (0.5 + 0.3 * math.sin(angle))
    samples = list(plane(WIDTH, HEIGHT, scale, (x, y, 36), (120, 60), 220 - 4 * (index % PERIOD)))
    half = (x / 2, y / 2, 18)
    samples += plane(WIDTH // 2, HEIGHT // 2, scale, half, (90, 40), 190)
    samples += plane(WIDTH // 2, HEIGHT // 2, scale, half, (30, 110), 70)
    return b"".join(sample.to_bytes(bits // 8 + bits % 8 // 2, "little") for sample in samples)


def main():
    directory = pathlib.Path(sys.argv[1])
    raw = {bits: [picture(index, bits) for index in range(PERIOD)] for bits in (8, 10)}
    for name, bits, pictures, arguments in CLIPS:
        shown = (raw[bits][index % PERIOD] for index in range(pictures))
        pixels = "yuv420p" if bits == 8 else "yuv420p10le"
        source = f"-f rawvideo -pix_fmt {pixels} -s {WIDTH}x{HEIGHT} -r 25 -i -"
        exact = "-fflags +bitexact -flags +bitexact -map_metadata -1 -pix_fmt"
        command = f"ffmpeg -v error -y {source} {exact} {pixels} {arguments}"
        subprocess.run([*command.split(), directory / name], input=b"".join(shown), check=True)


main()
