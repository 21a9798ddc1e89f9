"""Renders clips of which it is known when something moves: people and cars in weather, noise and changing light.

    render.py MEDIA SET [OUT] [--jobs 2] [--only PART]     SET: dev | held

MEDIA is the folder of real clips. Backgrounds and movers are cut out of them by the median of their frames, or drawn. The same
set gives the same pixels: everything is a function of the clip's name and of time, so one scene at 10, 25 and 60 frames a second
is the same motion. Thresholds are tuned on `dev`; `held` has other seeds, backgrounds, movers and sizes, and is only measured.
Beside each clip stands CLIP.json: `events` (start: the moment when 0.3 % of the picture differs by more than 10 levels from what
was there before the mover stirred; span: from its first stir to its last), `spans` (the spans alone, also those of movers too
small for a start), `calm` (all else, one second away from them), `nuisance` (a condition in which something moves that nobody
asks about: insects, headlights). Needs numpy and ffmpeg.
"""

import argparse
import functools
import json
import multiprocessing
import os
import pathlib
import subprocess
import zlib

import numpy as np

PAD = 8  # around the picture, for what shakes
START_SHARE, START_LEVELS = 0.003, 10
BACKGROUNDS = {"dev": ["car-detection", "one-by-one-person", "drawn", "drawn"], "held": ["traffic-camera", "bottle-detection", "drawn", "roof"]}
FILES = {"roof": "anim_adx-360p.mp4", "one-by-one-person": "surv_one-by-one-person.mp4"}
# Second in the source, and the box in which the mover stands, in shares of the picture.
PEOPLE = {"dev": [10.0, 30.0, 58.0], "held": [80.0, 105.0, 128.0]}
CARS = {"dev": [(6.25, (0.2, 0.0, 0.75, 1.0)), (16.5, (0.0, 0.0, 0.39, 1.0))],
        "held": [(16.5, (0.39, 0.0, 0.75, 1.0)), (26.5, (0.1, 0.0, 0.7, 1.0))]}
CONDITIONS = ["plain", "rain", "snow-light", "snow-heavy", "leaves", "water", "pulses", "night-8", "night-15", "night-25", "night-40", "headlights",
              "exposure", "lamp", "brightness", "flicker", "insects", "shake", "infrared"]
NUISANCE = {"insects", "headlights"}


def resize(a, height, width):
    """Bilinear; averages whole blocks first where it shrinks."""
    step = max(1, min(a.shape[0] // height, a.shape[1] // width))
    a = a[: a.shape[0] // step * step, : a.shape[1] // step * step].astype(np.float32)
    a = a.reshape(a.shape[0] // step, step, a.shape[1] // step, step).mean((1, 3))
    y, x = np.linspace(0, a.shape[0] - 1, height), np.linspace(0, a.shape[1] - 1, width)
    iy, ix = np.minimum(y.astype(int), max(a.shape[0] - 2, 0)), np.minimum(x.astype(int), max(a.shape[1] - 2, 0))
    fy, fx = (y - iy)[:, None].astype(np.float32), (x - ix)[None].astype(np.float32)
    jy, jx = np.minimum(iy + 1, a.shape[0] - 1), np.minimum(ix + 1, a.shape[1] - 1)
    top, low = a[iy][:, ix] * (1 - fx) + a[iy][:, jx] * fx, a[jy][:, ix] * (1 - fx) + a[jy][:, jx] * fx
    return top * (1 - fy) + low * fy


@functools.lru_cache(maxsize=None)
def frames_of(media, name, every, at=None):
    """Frames in 768x432 YUV 4:4:4: all at so many a second, or the one at a second."""
    file = f"{media}/clips/{FILES.get(name, f'surv_{name}.mp4')}"
    which = ["-ss", str(at)] if at is not None else []
    take = ["-frames:v", "1"] if at is not None else ["-r", str(every)]
    raw = subprocess.run(["ffmpeg", "-v", "error", *which, "-i", file, *take, "-vf", "scale=768:432", "-pix_fmt", "yuv444p", "-f", "rawvideo", "-"],
                         check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, 3, 432, 768)


@functools.lru_cache(maxsize=None)
def median_of(media, name):
    frames = frames_of(media, name, 1)
    # A phone's roof moves, and in the room somebody stands most of the time: only the start is empty.
    return np.median(frames[: {"roof": 1, "one-by-one-person": 5}.get(name)], 0).astype(np.float32)


def octaves(rng, height, width, sizes):
    return sum(resize(rng.normal(0, 1, (height // s + 2, width // s + 2)), height, width) * a for s, a in sizes)


def drawn(rng, height, width):
    """Street scene: sky, walls with windows, ground."""
    scale, horizon = height / 196, int(height * rng.uniform(0.3, 0.5))
    y = np.full((height, width), rng.uniform(90, 150), np.float32)
    y[:horizon] = np.linspace(190, 160, horizon)[:, None]
    u, v = np.full((height, width), 128, np.float32), np.full((height, width), 128, np.float32)
    u[:horizon] += 8
    for _ in range(7):
        wide, high = int(rng.uniform(25, 80) * scale), int(rng.uniform(0.15, 0.9) * horizon)
        left, tone = rng.integers(0, width - wide), rng.uniform(50, 170)
        top = horizon - high
        wall = np.s_[top:horizon, left:left + wide]
        y[wall], u[wall], v[wall] = tone, rng.uniform(112, 140), rng.uniform(116, 144)
        step = max(4, int(9 * scale))
        for wy in range(top + 3, horizon - step, step):
            for wx in range(left + 3, left + wide - step, step):
                y[wy:wy + step // 2, wx:wx + step // 2] = tone * rng.uniform(0.4, 0.8)
    y += octaves(rng, height, width, [(max(1, int(24 * scale)), 9), (max(1, int(6 * scale)), 6), (1, 3)])
    return np.clip([y, u, v], 16, 235)


def background(media, name, rng, height, width):
    if name == "drawn":
        return drawn(rng, height, width)
    return np.stack([resize(plane, height, width) for plane in median_of(media, name)])


def box(a, r):
    """Mean over a square of 2r + 1."""
    s = np.pad(np.pad(a, r, mode="edge").cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    n = 2 * r + 1
    return (s[n:, n:] - s[:-n, n:] - s[n:, :-n] + s[:-n, :-n]) / n**2


@functools.lru_cache(maxsize=None)
def cut_out(media, name, at, part):
    """Mover of a real clip: what differs from the median picture, with soft edges: (Y, U, V, alpha)."""
    frame, rest = frames_of(media, name, 1, at)[0].astype(np.float32), median_of(media, name)
    change = frame - rest
    change = np.abs(change - np.median(change, (1, 2), keepdims=True)).max(0)
    mask = np.zeros(change.shape, np.float32)
    x0, y0, x1, y1 = (int(edge * size) for edge, size in zip(part, (768, 432, 768, 432)))
    mask[y0:y1, x0:x1] = change[y0:y1, x0:x1] > 22
    mask = (box((box(mask, 5) > 0.5).astype(np.float32), 6) > 0.25).astype(np.float32)
    columns, rows = np.flatnonzero(mask.sum(0) > 8), np.flatnonzero(mask.sum(1) > 8)
    window = np.s_[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]
    return np.stack([*frame[(slice(None), *window)], box(mask, 2)[window]])


def drawn_mover(rng, kind):
    yy, xx = np.mgrid[0:1:120j, 0:1:(48 if kind == "person" else 240) * 1j]
    alpha = np.zeros(yy.shape)
    if kind == "person":
        alpha[((yy - 0.09) / 0.09) ** 2 + ((xx - 0.5) / 0.2) ** 2 < 1] = 1
        alpha[(yy > 0.17) & (yy < 0.55) & (np.abs(xx - 0.5) < 0.38)] = 1
        alpha[(yy >= 0.55) & (np.abs(np.abs(xx - 0.5) - 0.17) < 0.13)] = 1
    else:
        alpha[(yy > 0.45) & (yy < 0.85)] = 1
        alpha[(yy <= 0.45) & (yy > 0.05) & (np.abs(xx - 0.5) < 0.15 + 0.4 * yy)] = 1
        alpha[((xx % 0.5 - 0.22) / 0.09) ** 2 + ((yy - 0.82) / 0.17) ** 2 < 1] = 1
    y = np.where(yy < 0.5, *rng.permutation([rng.uniform(35, 80), rng.uniform(150, 215)])) + octaves(rng, *yy.shape, [(20, 12), (4, 5)])
    return np.stack([y, np.full(yy.shape, rng.uniform(105, 150)), np.full(yy.shape, rng.uniform(105, 150)), alpha]).astype(np.float32)


class Mover:
    """One thing that moves along a line, stands or goes, as a function of time."""

    def __init__(self, picture, height, width, legs, bob):
        self.legs, self.bob = legs, bob  # [(from, to, (x, y), (x, y))], seen from the first leg's start to the last one's end
        scaled = np.stack([resize(plane, height, width) for plane in picture])
        self.planes = np.pad(scaled[:3] * (scaled[3] > 0), ((0, 0), (1, 1), (1, 1)), mode="edge"), np.pad(scaled[3], 1)
        self.stays = False

    def place(self, t):
        first, last = self.legs[0], self.legs[-1]
        if t < first[0] or (t >= last[1] and not self.stays):
            return None
        leg = next((leg for leg in self.legs if t < leg[1]), last)
        share = min(max((t - leg[0]) / (leg[1] - leg[0]), 0), 1)
        moving = leg[0] < t < leg[1] and leg[2] != leg[3]
        lift = abs(np.sin(t * 2 * np.pi * 0.9)) * self.bob if moving else 0
        return leg[2][0] + (leg[3][0] - leg[2][0]) * share, leg[2][1] + (leg[3][1] - leg[2][1]) * share - lift

    def draw(self, canvas, t):
        place = self.place(t)
        if place is None:
            return
        for plane, colour in zip(canvas, range(3)):
            half = 2 if colour else 1
            x, y = place[0] / half, place[1] / half
            ix, iy = int(np.floor(x)), int(np.floor(y))
            alpha, tone = self.planes[1][::half, ::half], self.planes[0][colour][::half, ::half]
            fx, fy = np.float32(x - ix), np.float32(y - iy)

            def shifted(a):
                a = np.pad(a, ((1, 0), (1, 0)))
                a = a[:, 1:] * (1 - fx) + a[:, :-1] * fx
                return a[1:] * (1 - fy) + a[:-1] * fy

            soft, mixed = shifted(alpha), shifted(alpha * tone)
            top, left = max(0, -iy), max(0, -ix)
            low, right = min(soft.shape[0], plane.shape[0] - iy), min(soft.shape[1], plane.shape[1] - ix)
            if low > top and right > left:
                part = plane[iy + top:iy + low, ix + left:ix + right]
                part *= 1 - soft[top:low, left:right]
                part += mixed[top:low, left:right]


def schedule(rng, media, which, condition, width, height, count, light):
    """Movers of a clip, and (begin, end, kind, share of the picture) of each event, and the clip's length."""
    movers, events, t = [], [], 6.0
    while len(events) < count:
        kind = rng.choice(["person", "car"])
        far, fast = rng.random() < 0.3, rng.choice([0.06, 0.15, 0.35, 0.8], p=[0.2, 0.4, 0.3, 0.1])
        high = height * (rng.uniform(0.11, 0.16) if far else rng.uniform(0.2, 0.55 if kind == "person" else 0.32))
        if rng.random() < 0.3:
            picture = drawn_mover(rng, kind)
        elif kind == "person":
            picture = cut_out(media, "one-by-one-person", PEOPLE[which][rng.integers(3)], (0.3, 0.0, 0.85, 1.0))
        else:
            picture = cut_out(media, "car-detection", *CARS[which][rng.integers(2)])
            picture = picture.transpose(0, 2, 1) if rng.random() < 0.7 else picture
        wide = high * picture.shape[2] / picture.shape[1]
        if wide * high < 0.004 * width * height:
            high, wide = high * 1.6, wide * 1.6
        if kind == "person" and fast > 0.5:
            fast = 0.35
        picture = np.concatenate([picture[:1] * light, 128 + (picture[1:3] - 128) * light, picture[3:]])
        y = rng.uniform(0.35 * height, max(0.36 * height, height - high)) + PAD
        left, right = -wide + PAD - 2, width + PAD + 2
        ends = ((left, y), (right, y)) if rng.random() < 0.5 else ((right, y), (left, y))
        bob = high * 0.02 if kind == "person" else 0
        speed = fast * width
        if fast < 0.1 or rng.random() < 0.35:  # comes, stands, goes
            stand = (rng.uniform(0.15, 0.75) * width + PAD, y)
            near = abs(stand[0] - ends[0][0]) / speed
            if near > 14:
                stand = (ends[0][0] + np.sign(stand[0] - ends[0][0]) * 14 * speed, y)
                near = 14
            gone = (ends[1], abs(stand[0] - ends[1][0]) / speed)
            gone = gone if gone[1] < 14 else (ends[0], near)
            wait = rng.uniform(5, 9)
            stops, leaves = t + near, t + near + wait
            legs = [(t, stops, ends[0], stand), (stops, leaves, stand, stand), (leaves, leaves + gone[1], stand, gone[0])]
            events += [(legs[0][0], legs[0][1], f"{kind} arrives", speed), (legs[2][0], legs[2][1], f"{kind} leaves", speed)]
        else:
            legs = [(t, t + abs(right - left) / speed, *ends)]
            events.append((legs[0][0], legs[0][1], f"{kind} crosses", speed))
        movers.append(Mover(picture, max(4, int(high)), max(4, int(wide)), legs, bob))
        t = legs[-1][1] + rng.uniform(5, 8)
    return movers, events, t


class Weather:
    """What a condition does to a picture at a time; random numbers are drawn once, or from the frame's index."""

    def __init__(self, condition, rng, media, coarse, width, height):
        self.condition, self.rng, self.width, self.height, self.scale = condition, rng, width, height, height / 180
        plain = rng.uniform(1, 2.5) if not condition.startswith("night-") else float(condition[6:])
        self.noise = {"headlights": 6.0, "infrared": 5.0}.get(condition, plain)
        self.light = 0.3 if condition.startswith("night-") or condition == "headlights" else 1.0
        self.field = rng.standard_normal((height + 256, width + 256), np.float32)
        # What a camera's own noise reduction leaves is coarser than a pixel, and here two thirds as strong.
        if self.noise > 4 and coarse or condition == "night-15":
            self.field = box(self.field, 1).astype(np.float32) * 2
        self.phase = rng.uniform(0, 6.28, 8)
        self.pace = rng.uniform(0.7, 1.3, 8)
        drops = {"rain": 160, "snow-light": 50, "snow-heavy": 700}.get(condition, 0)
        self.drops = rng.uniform(0, 1, (4, drops))
        self.patch = None
        if condition in ("leaves", "water"):
            high, wide = int(height * rng.uniform(0.35, 0.6)), int(width * rng.uniform(0.3, 0.5))
            top, left = PAD if condition == "leaves" else height + PAD - high, int(rng.uniform(0, width - wide))
            yy, xx = np.mgrid[0:high, 0:wide].astype(np.float32)
            inside = ((yy - high / 2) / (high / 2)) ** 2 + ((xx - wide / 2) / (wide / 2)) ** 2
            texture = octaves(rng, high, wide + 16, [(max(2, int(3 * self.scale)), 28), (max(3, int(9 * self.scale)), 18)]) + 85
            self.patch = np.s_[top:top + high, left:left + wide], yy, xx, np.clip(4 * (1 - inside), 0, 1), texture.astype(np.float32)

    def geometry(self, canvas, t):
        """Leaves and water, behind the movers."""
        if self.patch is None:
            return
        (window, yy, xx, soft, texture), s = self.patch, self.scale
        part = canvas[0][window]
        if self.condition == "leaves":
            gust = (0.6 + 0.5 * np.sin(0.9 * t * self.pace[0] + self.phase[0]) + 0.4 * np.sin(0.37 * t + self.phase[1])) * 1.6 * s
            bend = np.sin(4.1 * t * self.pace[1] + yy / (11 * s) + self.phase[2]) + 0.6 * np.sin(7.3 * t + (xx + yy) / (7 * s))
            bend = 8 + gust * bend
            whole = np.clip(bend.astype(int), 0, 14)
            share = np.clip(bend - whole, 0, 1)
            row, column = yy.astype(int), xx.astype(int) + whole
            moved = texture[row, column] * (1 - share) + texture[row, column + 1] * share
        else:
            moved = 110 + 14 * np.sin(xx / (9 * s) + yy / (3 * s) + 2.2 * t * self.pace[0])
            moved += 11 * np.sin(yy / (2.2 * s) - xx / (15 * s) - 3.1 * t + self.phase[1])
            moved += 9 * np.sin(xx / (4 * s) - 5.3 * t * self.pace[2]) * np.sin(yy / (1.7 * s) + 1.3 * t)
        part *= 1 - soft
        part += soft * moved

    def window(self, canvas, t):
        """Picture cut out of the padded canvas, shaken where the pole shakes."""
        x = y = 0.0
        if self.condition == "shake":
            gust = max(0, 0.5 + 0.7 * np.sin(0.45 * t * self.pace[0] + self.phase[0])) * self.scale
            x = gust * (np.sin(2 * np.pi * 2.3 * t + self.phase[1]) + 0.4 * np.sin(2 * np.pi * 6.1 * t))
            y = gust * 0.5 * np.sin(2 * np.pi * 3.7 * t + self.phase[2])
        planes = []
        for plane, half in zip(canvas, (1, 2, 2)):
            ix, iy = int(np.floor(x / half)), int(np.floor(y / half))
            fx, fy = np.float32(x / half - ix), np.float32(y / half - iy)
            top, left, high, wide = PAD // half + iy, PAD // half + ix, self.height // half, self.width // half
            part = plane[top:top + high + 1, left:left + wide + 1]
            if fx or fy:
                part = part[:, :-1] * (1 - fx) + part[:, 1:] * fx
                part = part[:-1] * (1 - fy) + part[1:] * fy
            planes.append(np.array(part[:high, :wide]))
        return planes

    def light_at(self, planes, t):
        y, u, v = planes
        name, p, q = self.condition, self.phase, self.pace
        yy, xx = np.ogrid[0:self.height, 0:self.width]
        if name == "exposure":
            y *= np.float32(1 + 0.12 * np.sin(t * 0.31 * q[0] + p[0]) + 0.05 * np.sin(t * 0.9 * q[1] + p[1]))
            u += np.float32(7 * np.sin(t * 0.23 * q[2] + p[2]))
            v -= np.float32(6 * np.sin(t * 0.19 * q[3] + p[3]))
        elif name == "brightness":
            y *= np.float32(1 + 0.1 * np.clip(2 * np.sin(t * 1.1 * q[0] + p[0]), -1, 1))
        elif name == "flicker":
            y *= (1 + 0.04 * np.sin(2 * np.pi * (1.5 * yy / self.height + 0.8 * q[0] * t) + p[0])).astype(np.float32)
            y *= np.float32(1 + 0.02 * np.sin(2 * np.pi * 4.7 * q[1] * t))
        elif name == "lamp":
            period = 17 * q[0]
            since, on = (t + p[0]) % period, int((t + p[0]) // period) % 2
            ramp = np.float32(min(since / 0.12, 1))
            level = ramp if on else 1 - ramp
            far = ((yy - self.height * 0.3) / (0.45 * self.height)) ** 2 + ((xx - self.width * (0.3 + 0.06 * p[1])) / (0.3 * self.width)) ** 2
            y += (60 * level * np.exp(-far)).astype(np.float32)
        elif name == "headlights":
            since = (t + p[0]) % (13 * q[0])
            if since < 3:
                centre = self.width * (since / 3 * 1.6 - 0.3) * 1.0
                far = ((xx - centre) / (0.16 * self.width)) ** 2 + ((yy - self.height * 0.45) / (0.3 * self.height)) ** 2
                y += (70 * np.exp(-far)).astype(np.float32)
        elif name == "infrared":
            since, on = (t + p[0]) % (29 * q[0]), int((t + p[0]) // (29 * q[0])) % 2
            if on:
                y[:] = 40 + 0.75 * (y - 30)
                u[:], v[:] = 128, 128
                vignette = ((yy / self.height - 0.5) ** 2 + (xx / self.width - 0.5) ** 2) * 90
                y -= vignette.astype(np.float32)
            if since < 0.8:
                y *= np.float32(0.25 + 0.75 * since / 0.8)

    def fall(self, y, t):
        name, s = self.condition, self.scale
        if not self.drops.size:
            return
        a, b, c, d = self.drops
        pace = {"rain": 420.0, "snow-light": 55.0, "snow-heavy": 75.0}[name] * s * (0.7 + 0.6 * c)
        way = b * self.height * 1.3 + pace * t
        turn = np.floor(way / (self.height * 1.3))
        row = (way - turn * self.height * 1.3 - 0.2 * self.height).astype(int)
        sway = 0 if name == "rain" else 6 * s * np.sin(1.7 * t + 6.28 * d)
        column = (((a + 0.618 * turn) % 1) * self.width + sway).astype(int)
        bright = (14 + 26 * d if name == "rain" else 35 + 60 * d).astype(np.float32)
        size = (6 + 8 * d if name == "rain" else 1 + 2 * d * (1.4 if name == "snow-heavy" else 1)) * s
        if name == "snow-heavy":
            y *= np.float32(0.75)
            y += np.float32(45)
        longest = int(size.max()) + 1
        for down in range(longest):
            for across in range(1 if name == "rain" else longest):
                at = (row + down, column + across)
                seen = (down < size) & (across < size) & (at[0] >= 0) & (at[0] < self.height) & (at[1] >= 0) & (at[1] < self.width)
                y[at[0][seen], at[1][seen]] += bright[seen]

    def insects(self, y, t):
        if self.condition != "insects":
            return
        for index in range(2):
            since = (t + self.phase[index] * 3) % (19 * self.pace[index])
            if since < 5:
                x = self.width * (0.2 + 0.1 * since + 0.15 * np.sin(1.9 * since + self.phase[2])) + (0.3 * self.width if index else 0)
                z = self.height * (0.5 + 0.3 * np.sin(1.3 * since + self.phase[3 + index]))
                yy, xx = np.ogrid[0:self.height, 0:self.width]
                far = ((xx - x) ** 2 + (yy - z) ** 2) / (self.height * (0.035 + 0.03 * index)) ** 2
                y -= (70 * np.exp(-(far ** 2)) * min(since, 5 - since, 1)).astype(np.float32)

    def frame(self, canvas, t):
        planes = self.window(canvas, t)
        self.light_at(planes, t)
        self.fall(planes[0], t)
        self.insects(planes[0], t)
        dy, dx = self.rng.integers(0, 256, 2)
        planes[0] += self.field[dy:dy + self.height, dx:dx + self.width] * np.float32(self.noise)
        return b"".join(np.clip(plane + 0.5, 0, 255).astype(np.uint8).tobytes() for plane in planes)


def render(job):
    media, out, spec = job
    name, which, condition, (width, height) = spec["name"], spec["set"], spec["condition"], spec["size"]
    if (out / f"{name}.json").exists():
        return name
    rng = np.random.default_rng(zlib.crc32(spec["scene"].encode()))
    weather = Weather(condition, rng, media, which == "held" or "coarse" in name, width, height)
    full = (height + 2 * PAD, width + 2 * PAD)
    base = background(media, spec["background"], rng, *full)
    base[0] *= weather.light
    base[1:] = 128 + (base[1:] - 128) * weather.light
    base = [base[0].astype(np.float32), *(plane[::2, ::2].astype(np.float32) for plane in base[1:])]
    movers, events, seconds = [], [], spec.get("seconds")
    if seconds is None:
        movers, events, seconds = schedule(rng, media, which, condition, width, height, spec["events"], 0.45 if weather.light < 1 else 1.0)

    def clean(t):
        canvas = [plane.copy() for plane in base]
        for mover in movers:
            mover.draw(canvas, t)
        return canvas

    inner = np.s_[PAD:-PAD, PAD:-PAD]
    labels, spans = [], []
    for begin, end, kind, speed in events:
        before = clean(begin - 0.001)[0][inner]
        for t in np.arange(begin, end, 0.01):
            if np.mean(np.abs(clean(t)[0][inner] - before) > START_LEVELS) >= START_SHARE:
                labels.append({"start": round(float(t), 2), "span": [round(begin, 2), round(end, 2)], "kind": kind, "pixels_a_second": round(speed)})
                break
        spans.append([round(begin, 2), round(end, 2)])
    calm, free = [], 0.0
    for begin, end in sorted(spans) + [[seconds + 1, seconds + 1]]:
        if begin - 1 > free:
            calm.append([round(free, 2), round(begin - 1, 2)])
        free = max(free, end + 1)

    fps = spec["fps"]
    quality = f"-preset {'veryfast' if spec['events'] else 'ultrafast'} -crf {30 if weather.noise > 12 else 24}"
    if condition == "pulses":
        rate = width * height // 900
        quality = f"-preset veryfast -b:v {rate}k -maxrate {rate}k -bufsize {width * height // 450}k -bf 0 -sc_threshold 0"
    command = f"ffmpeg -v error -y -f rawvideo -pix_fmt yuv420p -s {width}x{height} -r {fps} -i - -c:v libx264 {quality} -g {int(fps * 2)} -threads 1"
    encoder = subprocess.Popen([*command.split(), "-fflags", "+bitexact", str(out / f"{name}.mp4")], stdin=subprocess.PIPE)
    weather.rng = np.random.default_rng([zlib.crc32(name.encode()), 1])
    for index in range(int(seconds * fps)):
        t = index / fps
        canvas = [plane.copy() for plane in base]
        weather.geometry(canvas, t)
        for mover in movers:
            mover.draw(canvas, t)
        encoder.stdin.write(weather.frame(canvas, t))
    encoder.stdin.close()
    if encoder.wait():
        raise SystemExit(f"ffmpeg failed on {name}")
    (out / f"{name}.json").write_text(json.dumps({
        "clip": f"{name}.mp4", "set": which, "condition": condition, "scene": spec["scene"], "background": spec["background"],
        "width": width, "height": height, "fps": fps, "seconds": round(int(seconds * fps) / fps, 3), "nuisance": condition in NUISANCE,
        "events": labels, "spans": spans, "calm": calm}, indent=1))
    return name


def clips(which):
    """Of each condition two clips with movers and one or two calm ones; some large; some of one scene at three rates."""
    places = BACKGROUNDS[which]

    def clip(name, condition, place, events=5, fps=25, size=(320, 180), scene=None, **more):
        return {"name": f"{which}-{name}", "scene": f"{which}-{scene or name}", "condition": condition, "background": places[place % 4],
                "events": events, "fps": fps, "size": size, **more}

    for at, condition in enumerate(CONDITIONS):
        for take in range(2):
            yield clip(f"{condition}-{take}", condition, at + 2 * take + 1)
        for take in range({"dev": 1, "held": 2}[which]):
            yield clip(f"calm-{condition}-{take}", condition, at + take, events=0, fps=25 if take else 12.5, seconds={"dev": 150, "held": 330}[which])
    if which == "dev":  # more calm where false episodes are the hardest to avoid
        for at, condition in enumerate(["snow-heavy", "leaves", "snow-light", "water", "shake", "night-15", "night-40", "rain", "lamp", "pulses"]):
            for take in range(3 if at < 3 else 2):
                yield clip(f"more-{condition}-{take}", condition, at + take, events=0, fps=25 if take else 12.5, seconds=330)
        for at, condition in enumerate(["night-8", "night-25", "night-40", "headlights", "snow-heavy"]):  # as noisy as the other set
            for take in range(2):
                yield clip(f"coarse-{condition}-{take}", condition, at + 2 * take)
            yield clip(f"calm-coarse-{condition}", condition, at, events=0, seconds=330)
    for condition in {"dev": ["plain", "rain", "night-15", "leaves"], "held": ["plain", "snow-light", "night-25", "pulses"]}[which]:
        yield clip(f"720p-{condition}", condition, 0, events=3, size=(1280, 720))
    for condition in ["plain", "night-8", "rain"]:
        for fps in (10, 25, 60):
            yield clip(f"rates-{condition}-{fps}", condition, 1, events=4, fps=fps, scene=f"rates-{condition}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("media")
    parser.add_argument("set", choices=["dev", "held"])
    parser.add_argument("out", nargs="?", default="target/bench-activity")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="only clips whose name has this")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(args.media, out, {**spec, "set": args.set}) for spec in clips(args.set) if args.only in spec["name"]]
    with multiprocessing.Pool(args.jobs) as pool:
        for done, name in enumerate(pool.imap_unordered(render, jobs), 1):
            print(f"{done} of {len(jobs)}: {name}", flush=True)


if __name__ == "__main__":
    main()
