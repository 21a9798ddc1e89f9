"""Measures what finds the moments in which something begins to move, on labelled clips (render.py beside this).

    run.py CLIPS RESULT.json [--sightline BIN] [--media DIR] [--frigate DIR] [--dvr-scan BIN] [--jobs 2] [--only PART] [--reuse RESULT.json]
    run.py --draw RESULT.json PICTURE.svg

CLIPS holds clips with their labels; --media adds the real clips of real.json. Beside Sightline: the keepalive alone (every 30
frames; every 2 s), DVR-Scan where its command is found (defaults, but for the 1.5 s that it puts before an event), and Frigate's
motion detector where --frigate names a checkout of it (its default settings, 5 pictures a second, settled on the first picture;
needs numpy, OpenCV and SciPy).

A start is found by an episode that starts between one second before the mover's first stir and 0.5 s after the label. One that
was already running counts only where another mover's span ended less than 3 s before: what never ends finds nothing, and is
told beside it as "found or running". A false episode touches no span, with one second of grace; beside their number stands the
share of calm time that episodes cover, as one that never ends is only one. The keepalive finds a start where it keeps a frame
within the 0.5 s behind it. Without a rule of novelty a model is asked about every kept frame; those kept "for a cause" are all
but the first and the keepalive's. A kept frame "shows" an event whose span it is in; "efficiency" is the mode with a keepalive of
10 s, whose frames are among those of the default.
"""

import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

NEAR, GRACE, JOIN = 0.5, 1.0, 3.0
NAMES = ["sightline", "efficiency", "dvr-scan", "frigate", "every 30 frames", "every 2 s"]
BESIDE = ["sightline", "dvr-scan", "frigate"]
DECODE = "ffmpeg -v error -nostdin -threads 1 -i".split()
HERE = pathlib.Path(__file__).resolve().parent


def measured(command):
    """Output and CPU seconds of a command and its children."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text = child.stdout.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"failed with {child.returncode}: {' '.join(map(str, command))}")
    return text, used.ru_utime + used.ru_stime


def joined(times, gap, step):
    """Episodes of the moments in which something moves: they end after a gap."""
    episodes = []
    for t in times:
        if episodes and t - episodes[-1][1] <= gap:
            episodes[-1][1] = t + step
        else:
            episodes.append([t, t + step])
    return episodes


def sightline(clip, args):
    text, cpu = measured([args.sightline, "analyze", clip, "--json", "--no-signals", "--threads", "1"])
    told = json.loads(text)
    return {"episodes": [[e["start_pts_ms"] / 1000, (e["end_pts_ms"] or 1e9) / 1000] for e in told["episodes"]], "cpu": cpu,
            "kept": [[k["pts_ms"] / 1000, k["reason"]] for k in told["kept"]]}


def dvr_scan(clip, args):
    text, cpu = measured([args.dvr_scan, "-i", clip, "-so", "-q", "-tb", "0"])
    codes = [code for line in text.splitlines() if line[:2].isdigit() for code in line.split(",")]
    times = [sum(float(part) * 60 ** power for power, part in enumerate(reversed(code.split(":")))) for code in codes]
    return {"episodes": [list(pair) for pair in zip(times[::2], times[1::2])], "cpu": cpu}


def frigate(clip, args):
    text, cpu = measured([sys.executable, __file__, "--frigate-clip", args.frigate, clip])
    return {"episodes": json.loads(text), "cpu": cpu}


def decode_alone(clip, _):
    return {"cpu": measured([*DECODE, clip, "-map", "0:v:0", "-f", "null", "-"])[1]}


def frigate_clip(folder, clip, rate=5):
    """Episodes by Frigate's detector alone, which is loaded from the checkout; what else it imports is not needed."""
    import cv2
    import numpy as np
    stands_for = {"camera": {"PTZMetrics": object}, "config.config": {"RuntimeMotionConfig": object}, "motion": {"MotionDetector": object},
                  "util.image": {"grab_cv2_contours": lambda found: found[0] if len(found) == 2 else found[1]}, "config": {}, "util": {}}
    sys.modules["frigate"] = types.ModuleType("frigate")
    for name, members in stands_for.items():
        module = sys.modules[f"frigate.{name}"] = types.ModuleType(name)
        vars(module).update(members)
    spec = importlib.util.spec_from_file_location("improved_motion", pathlib.Path(folder) / "frigate/motion/improved_motion.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    probe = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "stream=width,height", "-of", "csv=p=0", clip]
    width, height = map(int, subprocess.run(probe, check=True, stdout=subprocess.PIPE, text=True).stdout.strip().strip(",").split(","))
    config = types.SimpleNamespace(enabled=True, threshold=30, lightning_threshold=0.8, skip_motion_threshold=None, improve_contrast=True,
                                   contour_area=10, frame_alpha=0.01, frame_height=100, rasterized_mask=np.full((height, width), 255, np.uint8))
    detector = module.ImprovedMotionDetector((height, width), config, rate)
    options = f"-r {rate} -pix_fmt gray -f rawvideo -"
    decoder = subprocess.Popen([*DECODE, clip, *options.split()], stdout=subprocess.PIPE)
    cv2.setNumThreads(1)
    times, index = [], 0
    while len(data := decoder.stdout.read(width * height)) == width * height:
        picture = np.frombuffer(data, np.uint8).reshape(height, width)
        if index == 0:  # a camera has been running for long when something comes
            config.frame_alpha = 0.5
            for _ in range(60):
                detector.detect(picture)
            config.frame_alpha = 0.01
        boxes = detector.detect(picture)
        if boxes and not detector.is_calibrating():
            times.append(index / rate)
        index += 1
    decoder.wait()
    print(json.dumps(joined(times, 1.0, 1 / rate)))


def touches(a, b):
    return a[0] < b[1] and b[0] < a[1]


def score(label, told):
    """Starts found, false episodes, and seconds of calm that episodes cover, of one clip."""
    found, covered = [], 0
    spans = label["spans"]
    for event in label["events"]:
        start, begin = event["start"], event["span"][0]
        begins = any(begin - GRACE <= episode[0] <= start + NEAR for episode in told["episodes"])
        follows = any(span[0] < begin and begin - span[1] < JOIN for span in spans)
        covered += begins or any(episode[0] < start < episode[1] for episode in told["episodes"])
        found.append(begins or (follows and any(episode[0] < start < episode[1] for episode in told["episodes"])))
    wide = [[begin - GRACE, end + GRACE] for begin, end in spans]
    false = [episode for episode in told["episodes"] if not any(touches(episode, span) for span in wide)]
    busy = sum(max(0, min(episode[1], calm[1]) - max(episode[0], calm[0])) for episode in told["episodes"] for calm in label["calm"])
    missed = [event["start"] for event, is_found in zip(label["events"], found) if not is_found]
    return {"starts": len(found), "found": sum(found), "covered": covered, "false": len(false), "busy": busy, "missed": missed,
            "false_at": [round(episode[0], 2) for episode in false]}


def kept(label, times):
    """Number of kept frames, and of the events that they show."""
    shown = sum(any(event["span"][0] <= t <= event["span"][1] for t in times) for event in label["events"])
    return {"starts": len(label["events"]), "kept": len(times), "shown": shown}


def keepalive(label, step):
    found = sum(-(-event["start"] // step) * step <= event["start"] + NEAR for event in label["events"])
    return {"found": int(found), **kept(label, [index * step for index in range(int(label["seconds"] // step) + 1)])}


def measure(label, args):
    """Scores of every detector on one clip."""
    clip = label["path"]
    rows, earlier = {}, args.earlier.get(label["clip"], {})
    detectors = ("sightline", sightline, True), ("dvr-scan", dvr_scan, args.dvr_scan), ("frigate", frigate, args.frigate), ("decode", decode_alone, True)
    for name, detector, runs in detectors:
        if runs or name in earlier:
            told = earlier[name] if name in ("dvr-scan", "frigate") and name in earlier else detector(clip, args)
            rows[name] = {"cpu": round(told["cpu"], 3), **(score(label, told) if "episodes" in told else {}), "episodes": told.get("episodes")}
            if "kept" in told:
                caused = sum(reason not in ("periodic_keepalive", "initial_frame") for _, reason in told["kept"])
                rows[name] |= {**kept(label, [t for t, _ in told["kept"]]), "kept_for_cause": caused}
                few = [t for t, reason in told["kept"] if reason != "periodic_keepalive" or t % 10 < 2]
                rows["efficiency"] = {**kept(label, few), "found": rows[name]["found"], "kept_for_cause": caused}
    rows["every 30 frames"], rows["every 2 s"] = keepalive(label, 30 / label["fps"]), keepalive(label, 2.0)
    about = {key: label[key] for key in ("clip", "condition", "scene", "width", "fps", "seconds", "nuisance")}
    return {**about, "calm_seconds": sum(b - a for a, b in label["calm"]), "rows": rows}


def total(clips, name):
    """One line of a table: figures of a detector over some clips."""
    rows = [(clip, clip["rows"][name]) for clip in clips if name in clip["rows"]]
    if not rows:
        return None
    add = lambda key: sum(row.get(key, 0) for _, row in rows)  # noqa: E731
    share = lambda part, whole: part / whole if whole else None  # noqa: E731
    hours, calm = sum(clip["seconds"] for clip, _ in rows) / 3600, sum(clip["calm_seconds"] for clip, _ in rows) / 3600
    line = {"starts": add("starts"), "found": add("found"), "recall": share(add("found"), add("starts")), "hours": hours, "calm_hours": calm}
    if "false" in rows[0][1]:
        line |= {"false": add("false"), "false_per_hour": share(add("false"), calm), "calm_busy": share(add("busy") / 3600, calm),
                 "covered": share(add("covered"), add("starts"))}
    if "kept" in rows[0][1]:
        line |= {"kept_per_hour": add("kept") / hours, "shown": share(add("shown"), add("starts"))}
    if "kept_for_cause" in rows[0][1]:
        line |= {"caused_per_hour": add("kept_for_cause") / hours}
    if "cpu" in rows[0][1]:
        line |= {"cpu_per_hour": add("cpu") / hours, "cpu_ratio": add("cpu") / sum(clip["rows"]["decode"]["cpu"] for clip, _ in rows)}
    return line


def rates(clips):
    """Largest difference between the starts of the same scene at other frame rates."""
    scenes = collections.defaultdict(list)
    for clip in clips:
        scenes[clip["scene"]].append(clip)
    told = {}
    for scene, takes in scenes.items():
        if len(takes) > 1:
            starts = {take["fps"]: [episode[0] for episode in take["rows"]["sightline"]["episodes"]] for take in takes}
            is_same = len({len(times) for times in starts.values()}) == 1
            apart = max((max(times) - min(times) for times in zip(*starts.values())), default=0)
            told[scene] = {"starts": starts, "largest_difference": apart if is_same else None}
    return told


def figure(value, form):
    return "–" if value is None else format(value, form)


def tables(result, worst):
    """Totals a line a detector; then a line a condition, with the figures of the detectors beside each other."""
    columns = {"recall": ("Found", ".0%"), "covered": ("Found or running", ".0%"), "false_per_hour": ("False an hour", ".1f"), "calm_busy": ("Calm covered", ".1%"),
               "kept_per_hour": ("Kept an hour", ",.0f"), "caused_per_hour": ("For a cause", ",.0f"),
               "shown": ("Events shown", ".0%"), "cpu_ratio": ("CPU, decode = 1", ".1f")}
    for title, lines in (("all but insects and headlights", result["total"]), ("all", result["with_nuisance"])):
        print(f"| {title} | Starts | " + " | ".join(name for name, _ in columns.values()) + " |\n" + "|---" * 10 + "|")
        for name in NAMES:
            if line := lines.get(name):
                print(f"| {name} | {line['starts']} | " + " | ".join(figure(line.get(key), form) for key, (_, form) in columns.items()) + " |")
        print()
    beside = [name for name in BESIDE if name in result["total"]]
    print(f"| {' / '.join(beside)} | Starts | Found | False an hour | Calm covered |\n" + "|---" * 5 + "|")
    for condition in worst:
        lines = [result["conditions"][condition][name] for name in beside]
        print(f"| {condition} | {lines[0]['starts']} | " + " | ".join(
            " / ".join(figure(line[key], form) for line in lines) for key, form in (("recall", ".0%"), ("false_per_hour", ".0f"), ("calm_busy", ".0%"))) + " |")
    print()
    for scene, told in result["rates"].items():
        print(f"{scene}: starts are {figure(told['largest_difference'], '.3f')} s apart at most; frames a second and starts: {told['starts']}")


def draw(result, out):
    """Bars of what was found, of false episodes and of calm covered below the name of each detector, as wide as a telephone; colours
    follow the reader's theme."""
    names = {"sightline": "Sightline", "frigate": "Frigate's motion detector", "dvr-scan": "DVR-Scan 1.8", "every 2 s": "a frame every 2 s",
             "every 30 frames": "every 30th frame"}
    rows = [(label, result["total"][name]) for name, label in names.items() if name in result["total"]]
    calm, starts = rows[0][1]["calm_hours"], rows[0][1]["starts"]
    most_false = max(row.get("false_per_hour", 0) for _, row in rows) or 1
    panels = [(12, "recall", "Starts found", f"of {starts}, within 0.5 s", "{:.0%}", 1),
              (175, "false_per_hour", "False an hour", f"in {calm:.1f} h of calm", "{:.1f}", most_false),
              (335, "calm_busy", "Calm in episodes", "less is better", "{:.0%}", 1)]
    height = 56 + len(rows) * 44
    parts = [f'<text class="ink" x="{x}" y="24" font-weight="600">{title}</text><text class="ink2" x="{x}" y="41" font-size="12">{note}</text>'
             for x, _, title, note, _, _ in panels]
    for index, (label, row) in enumerate(rows):
        y = 66 + index * 44
        weight = "" if index else ' font-weight="600"'
        parts.append(f'<text class="ink" x="12" y="{y}"{weight}>{label}</text>')
        for x, key, _, _, form, most in panels:
            wide = max(1.0, row.get(key, 0) / most * 95)
            if key in row:
                parts.append(f'<rect class="{"other" if index else "own"}" x="{x}" y="{y + 7}" width="{wide:.1f}" height="14" rx="2"/>'
                             f'<text class="ink" x="{x + 6 + wide:.1f}" y="{y + 19}">{form.format(row[key])}</text>')
            else:
                parts.append(f'<text class="ink2" x="{x}" y="{y + 19}">no episodes</text>')
    themes = [".paper{fill:%s}.ink{fill:%s}.ink2{fill:%s}.own{fill:%s}.other{fill:%s}" % colours
              for colours in (("#fff", "#141a21", "#5f6c7b", "#1a5fd0", "#808c9a"), ("#13171d", "#e9edf2", "#8a96a6", "#82b4ff", "#5d6b7d"))]
    out.write_text(f"""<svg xmlns="http://www.w3.org/2000/svg" width="480" height="{height}" viewBox="0 0 480 {height}" role="img" aria-label="Starts found and false episodes of detectors"
 font-family="Inter, system-ui, sans-serif" font-size="14">
<style>{themes[0]}@media (prefers-color-scheme: dark){{{themes[1]}}}</style>
<rect class="paper" width="480" height="{height}" rx="6"/>
{chr(10).join(parts)}
</svg>
""")


def labels(args):
    for path in sorted(pathlib.Path(args.clips).glob("*.json")):
        label = json.loads(path.read_text())
        yield label | {"path": str(path.with_name(label["clip"]))}
    if args.media:
        for label in json.loads((HERE / "real.json").read_text()):
            yield label | {"path": f"{args.media}/{label['clip']}", "scene": label["clip"], "condition": "real", "nuisance": False}


def main():
    if sys.argv[1:2] == ["--frigate-clip"]:
        return frigate_clip(*sys.argv[2:])
    if sys.argv[1:2] == ["--draw"]:
        return draw(json.loads(pathlib.Path(sys.argv[2]).read_text()), pathlib.Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips")
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--sightline", default="target/release/sightline")
    parser.add_argument("--media")
    parser.add_argument("--frigate")
    parser.add_argument("--dvr-scan", default=shutil.which("dvr-scan"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--reuse", type=pathlib.Path, help="result of which to take what DVR-Scan and Frigate found")
    args = parser.parse_args()
    args.earlier = {clip["clip"]: clip["rows"] for clip in json.loads(args.reuse.read_text())["clips"]} if args.reuse else {}
    chosen = [label for label in labels(args) if args.only in label["clip"]]
    clips = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for clip in pool.map(lambda label: measure(label, args), chosen):
            clips.append(clip)
            print(f"{len(clips)} of {len(chosen)}: {clip['clip']}", file=sys.stderr, flush=True)
    lines = lambda some: {name: line for name in NAMES + ["decode"] if (line := total(some, name))}  # noqa: E731
    conditions = sorted({clip["condition"] for clip in clips})
    by_condition = {condition: lines([clip for clip in clips if clip["condition"] == condition]) for condition in conditions}
    ours = {condition: line["sightline"] for condition, line in by_condition.items()}
    worst = sorted(conditions, key=lambda condition: (ours[condition]["recall"] or 0) - (ours[condition]["false_per_hour"] or 0) / 60)
    asked = lines([clip for clip in clips if not clip["nuisance"]])
    result = {"total": asked, "with_nuisance": lines(clips), "conditions": by_condition, "rates": rates(clips), "clips": clips}
    args.result.write_text(json.dumps(result, indent=1))
    tables(result, worst)


if __name__ == "__main__":
    main()
