#!/usr/bin/env python3
"""What Ray costs a file, and what more nodes bring: `sightline analyze` by hand and through deploy/ray, in turns.

    target/ray-.../bin/python benches/backlog.py SIGHTLINE CLIP [FILES] [ROUNDS]

FILES copies of CLIP (default 24) are analysed by the command alone and by `python -m sightline_ray`, on one core and on two, which are
nodes of one core each. The start of the cluster and of the driver is not in it: seconds are those between the first and the last result.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "deploy/ray"))
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}

from ray.cluster_utils import Cluster  # noqa: E402


def by_hand(sightline, footage, out, at_once):
    """The commands that a script would run, so many at once."""

    def analyse(file):
        kept = out / file.name
        command = [sightline, "analyze", file, "--json", "--no-signals", "--threads", "1", "--parquet", kept, "--stills", kept / "stills"]
        subprocess.run(command, check=True, capture_output=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(analyse, sorted(footage.iterdir())))
    return span(out.glob("*/markers.parquet"))


def by_ray(sightline, footage, out, cluster):
    command = [sys.executable, "-m", "sightline_ray", footage, out, "--address", cluster.address, "--program", sightline]
    subprocess.run(command, cwd=ROOT / "deploy/ray", check=True, stderr=subprocess.DEVNULL)
    return span(out.glob("results/*/*.json"))


def span(results):
    """Seconds a file, from the first to the last."""
    times = [result.stat().st_mtime for result in results]
    return (max(times) - min(times)) / (len(times) - 1)


def main():
    sightline, clip = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    files, rounds = [*map(int, sys.argv[3:]), *[24, 5][len(sys.argv) - 3 :]]
    with tempfile.TemporaryDirectory() as scratch:
        footage = Path(scratch, "footage")
        footage.mkdir()
        for at in range(files):
            shutil.copy(clip, footage / f"{at:03}{clip.suffix}")
        for nodes in (1, 2):
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
            for _ in range(nodes - 1):
                cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            rows = []
            for at in range(rounds + 1):
                hand, ray = Path(scratch, f"hand-{nodes}-{at}"), Path(scratch, f"ray-{nodes}-{at}")
                rows.append((by_hand(sightline, footage, hand, nodes), by_ray(sightline, footage, ray, cluster)))
                shutil.rmtree(hand)
                shutil.rmtree(ray)
                print(f"  {nodes} nodes: by hand {rows[-1][0]:.3f}, Ray {rows[-1][1]:.3f} s a file, load {os.getloadavg()[0]:.1f}", flush=True)
            cluster.shutdown()
            # The first round starts Ray's workers.
            ratios = [ray / hand for hand, ray in rows[1:]]
            means = [statistics.median(column) for column in zip(*rows[1:])]
            print(f"{nodes} nodes of one core: by hand {means[0]:.3f}, Ray {means[1]:.3f} s a file; ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
