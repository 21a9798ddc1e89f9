"""Prints the tables of docs/NOVELTY.md: distances and cell changes of what happens to pictures.

Three frames of each clip are changed in known ways; then frames of a clip are compared with later ones.

    python3 distances.py CLIPS_FOLDER [MODEL.onnx]
"""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

WIDTH, HEIGHT, RATE, SECONDS = 640, 360, 5, 30
DISTANCE_MAX, CELL_MAX = 0.01, 12


def frames(clip):
    """The first seconds of a clip in one size, five frames a second; none where it has no picture."""
    scale = f"fps={RATE},scale={WIDTH}:{HEIGHT}:flags=area"
    command = ["ffmpeg", "-v", "quiet", "-i", str(clip), "-t", str(SECONDS), "-vf", scale]
    raw = subprocess.run(command + ["-pix_fmt", "rgb24", "-f", "rawvideo", "-"], capture_output=True)
    return np.frombuffer(raw.stdout, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)


class Measure:
    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options)

    def embedding(self, frame):
        side = Image.fromarray(frame).resize((224, 224), Image.BOX)
        planes = (np.asarray(side, np.float32) / 255).transpose(2, 0, 1)[None]
        return self.session.run(None, {"picture": planes})[0][0].astype(float)

    @staticmethod
    def cells(frame):
        luma = Image.fromarray(frame).convert("L")
        return np.asarray(luma.resize((64, 40), Image.BOX)).astype(int)

    def pair(self, one, other):
        distance = ((self.embedding(one) - self.embedding(other)) ** 2).sum() / 2
        return distance, np.abs(self.cells(one) - self.cells(other)).max()


def rounded(samples):
    return np.clip(np.round(samples), 0, 255).astype(np.uint8)


def jpeg(frame, quality):
    packed = io.BytesIO()
    Image.fromarray(frame).save(packed, "JPEG", quality=quality)
    return np.asarray(Image.open(packed).convert("RGB"))


def shaken(frame, pixels):
    return np.roll(np.roll(frame, pixels, 1), pixels // 2, 0)


def with_object(frame, other, aspect, random):
    """2 % of the frame from somewhere in another clip, at any place."""
    area = 0.02 * WIDTH * HEIGHT
    height, width = int(round((area * aspect) ** 0.5)), int(round((area / aspect) ** 0.5))
    (y, from_y), (x, from_x) = random.integers(0, HEIGHT - height, 2), random.integers(0, WIDTH - width, 2)
    changed = frame.copy()
    changed[y : y + height, x : x + width] = other[from_y : from_y + height, from_x : from_x + width]
    return changed


def with_patch(frame, contrast, random):
    """2 % of the frame lighter or darker by `contrast`."""
    side = int(round((0.02 * WIDTH * HEIGHT) ** 0.5))
    y, x = random.integers(0, HEIGHT - side), random.integers(0, WIDTH - side)
    changed = frame.astype(float)
    part = changed[y : y + side, x : x + side]
    part += contrast if part.mean() < 128 else -contrast
    return rounded(changed)


def main(folder, model):
    random = np.random.default_rng(7)
    measure = Measure(model)
    clips = {clip.name: frames(clip) for clip in sorted(Path(folder).iterdir())}
    clips = {name: found for name, found in clips.items() if len(found) > 1 and found.std() > 1}
    picks = [(n, c[i]) for n, c in clips.items() for i in np.linspace(0, len(c) - 1, 3).astype(int)]
    rows = {}

    def add(name, one, other):
        rows.setdefault(name, []).append(measure.pair(one, other))

    for name, frame in picks:
        for sigma in (4, 10):
            add(f"noise, deviation {sigma}", frame, rounded(frame + random.normal(0, sigma, frame.shape)))
        for quality in (75, 40):
            add(f"JPEG, quality {quality}", frame, jpeg(frame, quality))
        for percent in (5, 15):
            add(f"{percent} % more light", frame, rounded(frame * (1 + percent / 100)))
        add("shaken by 0.3 %", frame, shaken(frame, 2))
        add("shaken by 1 %", frame, shaken(frame, 6))
        others = [other for clip, other in picks if clip != name]
        for aspect in (1, 1, 3, 3, 1 / 3, 1 / 3):
            other = others[random.integers(len(others))]
            add("new object of 2 %", frame, with_object(frame, other, aspect, random))
        for contrast in (20, 40):
            add(f"patch of 2 %, contrast {contrast}", frame, with_patch(frame, contrast, random))
        add("another clip", frame, others[random.integers(len(others))])
    for name, clip in clips.items():
        for at in range(0, len(clip) - RATE, 4):
            add(f"{name.split('_')[0]}: 0.2 s later", clip[at], clip[at + 1])
            add(f"{name.split('_')[0]}: 1 s later", clip[at], clip[at + RATE])

    print("| What happened | pairs | distance: median, 95 %, most | largest cell: 5 %, median, 95 % | reused |")
    print("|---|---|---|---|---|")
    for name, pairs in rows.items():
        distance, cell = np.array(pairs).T
        reused = ((distance <= DISTANCE_MAX) & (cell <= CELL_MAX)).mean()
        d = "{:.4f}, {:.4f}, {:.4f}".format(*np.percentile(distance, (50, 95, 100)))
        c = "{:.0f}, {:.0f}, {:.0f}".format(*np.percentile(cell, (5, 50, 95)))
        print(f"| {name} | {len(pairs)} | {d} | {c} | {reused:.0%} |")
    distance, cell = np.array(rows["new object of 2 %"]).T
    print(f"\nOf {len(cell)} new objects, {(distance <= DISTANCE_MAX).mean():.0%} pass the distance, {(cell <= CELL_MAX).sum()} pass both.")


if __name__ == "__main__":
    built_in = str(Path(__file__).with_name("descriptor.onnx"))
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else built_in)
