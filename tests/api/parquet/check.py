"""Compares Parquet files of a run, row for row, with what the API answers.

    check.py BASE KEY RUN DIR     DIR as `sightline export` wrote it
    check.py --picture PNG        a plot with a curve and with cuts
"""
import json
import math
import sys
import urllib.parse
import urllib.request

import duckdb
import pandas
import polars

FRAMES = """run_id stream_id frame_index source_frame_index pts_ms perceptual_hash luma_mean
flicker_score ghosting_score noise_variance_score scene_score kept reason activity_score activity_x
activity_y activity_width activity_height seq""".split()
EPISODES = """run_id stream_id start_frame end_frame start_pts_ms end_pts_ms peak_score peak_frame
activity_x activity_y activity_width activity_height zones image_sha256""".split()
MARKERS = """run_id stream_id marker_id event_type status start_frame end_frame start_pts_ms
end_pts_ms confidence supersedes_marker_id analysis_id origin seq appended_at""".split()
EVENTS = "run_id seq appended_at kind payload".split()


def ask(base, key, path):
    request = urllib.request.Request(base + path, headers={"x-api-key": key})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def placed(record, region):
    """The record with the sides of a region, if it has one."""
    sides = {f"activity_{side}": (region or {}).get(side) for side in ("x", "y", "width", "height")}
    return record | sides


def told(base, key, run):
    """The rows as the API has them."""
    root = f"/v1/runs/{run}"
    events = ask(base, key, f"{root}/events")["events"]
    streams = []
    for event in events:
        if event["kind"] == "frames_decoded":
            assert event["payload"].pop("signals"), "the test needs frames"
            if event["payload"]["stream_id"] not in streams:
                streams.append(event["payload"]["stream_id"])
    frames = []
    for stream in streams:
        answer = ask(base, key, f"{root}/signals?stream_id={urllib.parse.quote(stream)}")
        for frame in answer["signals"]:
            frame |= {"run_id": run, "stream_id": stream}
            frame["perceptual_hash"] = int(frame["perceptual_hash"], 16)
            frame = placed(frame, frame.get("activity_region"))
            frames.append([frame.get(name) for name in FRAMES])
    found = ask(base, key, f"{root}/activity")["episodes"]
    episodes = [placed(it, it["region"]) | {"run_id": run} for it in found]
    markers = ask(base, key, f"{root}/markers")["markers"]
    return {
        "frames": (FRAMES, frames),
        "markers": (MARKERS, [[marker.get(name) for name in MARKERS] for marker in markers]),
        "episodes": (EPISODES, [[it[name] for name in EPISODES] for it in episodes]),
        "events": (EVENTS, [[run, e["seq"], e["pts_ms"], e["kind"], e["payload"]] for e in events]),
    }


def plain(name, value):
    """A value as the API has it: of times the milliseconds, of JSON what it says, of nothing None."""
    if name in ("payload", "zones"):
        return json.loads(value)
    if value is None or value is pandas.NA or value is pandas.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if name == "appended_at":
        return round(value.timestamp() * 1000)
    return value.item() if hasattr(value, "item") else value


def readers(path):
    """What each tool makes of a file: the names of its columns, and its rows."""
    found = duckdb.sql(f"select * from '{path}'")
    yield "duckdb", found.columns, found.fetchall()
    found = polars.read_parquet(path)
    yield "polars", found.columns, found.rows()
    # Without it a column of integers in which some are missing becomes one of floats.
    found = pandas.read_parquet(path, dtype_backend="numpy_nullable")
    yield "pandas", list(found.columns), list(found.itertuples(index=False, name=None))


def compare(base, key, run, folder):
    for table, (names, expected) in told(base, key, run).items():
        assert expected, f"the test needs {table}"
        for tool, columns, rows in readers(f"{folder}/{table}.parquet"):
            assert list(columns) == names, (tool, columns)
            assert len(rows) == len(expected), (tool, table, len(rows), len(expected))
            for row, want in zip(rows, expected):
                row = [plain(name, value) for name, value in zip(names, row)]
                assert row == want, (tool, table, row, want)
        print(table, len(expected))


def picture(path):
    from PIL import Image

    shown = Image.open(path).convert("RGB")
    colours = {colour: count for count, colour in shown.getcolors(1 << 24)}
    for name, colour in (("the curve", (31, 119, 180)), ("the cuts", (214, 39, 40))):
        assert colours.get(colour, 0) > 100, f"{name} cannot be seen in {shown.size}"


if sys.argv[1] == "--picture":
    picture(sys.argv[2])
else:
    compare(*sys.argv[1:])
