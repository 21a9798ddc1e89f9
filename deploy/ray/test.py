#!/usr/bin/env python3
"""A backlog on a Ray cluster of three nodes of this machine, which is broken on purpose.

    deploy/ray/test [sightline]        installs Ray in target/ and runs this
"""

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# What every node has, and the driver.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}

from moto.server import ThreadedMotoServer  # noqa: E402
from pyarrow import fs  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from sightline_ray.__main__ import VIDEOS, sources  # noqa: E402
from sightline_ray.store import Store, located  # noqa: E402
from sightline_ray.task import Job, run_id  # noqa: E402

SIGHTLINE = str(Path(sys.argv.pop(1)).resolve())
GOOD, PATIENCE_S = 18, 120

# The command, with every call of it told; a file may kill it: once where its name says so, or whenever it is read.
WRAPPER = """#!/bin/sh
[ "$1" = --version ] && exec {sightline} --version
echo "$2" >>{calls}
case "$2" in
*doomed*) kill -9 $$ ;;
*flaky*) [ "$(grep -cxF "$2" {calls})" -gt 1 ] || kill -9 $$ ;;
esac
exec {sightline} "$@"
"""


def ffmpeg(path, at):
    source = f"testsrc2=size=320x180:rate=25:duration={3 + at % 3},hue=h={at * 20}"
    command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-c:v", "libx264", "-preset", "ultrafast", path]
    subprocess.run(command, check=True)


def eventually(what, look):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def descendants(pid):
    """The processes below one, and their names."""
    parents, names = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            head, rest = (entry / "stat").read_text().rsplit(") ", 1)
        except OSError:
            continue
        parents.setdefault(int(rest.split()[1]), []).append(int(entry.name))
        names[int(entry.name)] = head.split("(", 1)[1]
    found, new = [], [pid]
    while new:
        new = [child for one in new for child in parents.get(one, [])]
        found += new
    return {one: names[one] for one in found}


class Backlog(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.scratch.name)
        cls.footage = cls.dir / "footage"
        (cls.footage / "gate 2").mkdir(parents=True)
        for at in range(GOOD):
            ffmpeg(cls.footage / ("gate 2" if at % 2 else ".") / f"{at:02}.mp4", at)
        good = (cls.footage / "00.mp4").read_bytes()
        (cls.footage / "broken.mp4").write_bytes(random.Random(1).randbytes(20_000))
        (cls.footage / "empty.mp4").write_bytes(b"")
        (cls.footage / "cut.mp4").write_bytes(good[: len(good) // 2])
        (cls.footage / "notes.txt").write_text("no video")
        cls.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cls.nodes = [cls.cluster.add_node(num_cpus=1) for _ in range(2)]
        cls.cluster.wait_for_nodes()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.shutdown()
        cls.scratch.cleanup()

    def setUp(self):
        self.calls = self.dir / f"{self.id()}.calls"
        self.calls.touch()
        self.program = self.dir / f"{self.id()}.sh"
        self.program.write_text(WRAPPER.format(sightline=SIGHTLINE, calls=self.calls))
        self.program.chmod(0o755)
        self.url = str(self.dir / self.id())
        self.store = Store(self.url)

    def begin(self, *options, footage=None, program=None):
        command = [sys.executable, "-m", "sightline_ray", footage or self.footage, self.url, "--address", self.cluster.address]
        command += ["--program", program or self.program, *options]
        return subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True)

    def work(self, *options, **other):
        begun = self.begin(*options, **other)
        _, said = begun.communicate(timeout=PATIENCE_S)
        return begun.returncode, said

    def results(self):
        return [self.store.read(path) for path in self.store.records()]

    def called(self):
        return Counter(Path(line).name for line in self.calls.read_text().splitlines())

    def check_whole(self):
        """One result for each file, the same as that of the command by hand."""
        version = subprocess.run([SIGHTLINE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        job = Job(self.url, SIGHTLINE, version)
        found = {result["run_id"]: result for result in self.results()}
        expected = {run_id(job, source): source for source in sources([str(self.footage)], VIDEOS)}
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual(len(list(self.store.records())), GOOD + 3)
        for run, source in expected.items():
            kept = Path(self.url, "runs", run[4:6], run)
            name = Path(source.url).name
            if name in ("broken.mp4", "empty.mp4", "cut.mp4"):
                self.assertEqual(found[run]["status"], "refused", name)
                self.assertIn(name, found[run]["error"])
                self.assertFalse(kept.exists(), name)
                continue
            self.assertEqual(found[run]["status"], "done", name)
            by_hand = self.dir / "by-hand" / run
            if not by_hand.exists():
                command = [SIGHTLINE, "analyze", source.url, "--run-id", run, "--parquet", by_hand, "--stills", by_hand / "stills"]
                subprocess.run(command, check=True, capture_output=True)
            self.assertEqual(self.contents(kept), self.contents(by_hand), name)
        # What attempts that died have left aside goes with its age.
        for path in Path(self.store.aside).iterdir():
            os.utime(path, (0, 0))
        self.store.sweep()
        self.assertEqual(os.listdir(self.store.aside), [])

    @staticmethod
    def contents(folder):
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_a_killed_node(self):
        begun = self.begin()
        raylet = self.nodes[0].all_processes["raylet"][0].process.pid
        eventually("a third of the results", lambda: len(list(self.store.records())) > GOOD / 3)
        at_work = eventually("a file on the node", lambda: (found := descendants(raylet)) and "sightline" in found.values() and found)
        for pid in [raylet, *at_work]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        left = GOOD + 3 - len(list(self.store.records()))
        self.assertGreater(left, 0, "the node died too late")
        _, said = begun.communicate(timeout=PATIENCE_S)
        self.assertEqual(begun.returncode, 1, said)
        self.check_whole()
        for name in ("broken.mp4", "empty.mp4", "cut.mp4"):
            self.assertLessEqual(self.called()[name], 2, "the attempt, and perhaps that of the dead node")
        before = self.calls.read_text()
        code, said = self.work()
        self.assertEqual((code, self.calls.read_text()), (0, before), said)
        print(f"a node of three killed with {left} of {GOOD + 3} files left: {sum(self.called().values())} calls", file=sys.stderr)

    def test_a_killed_driver(self):
        begun = self.begin()
        eventually("a result", lambda: list(self.store.records()))
        begun.kill()
        begun.communicate()
        self.assertLess(len(list(self.store.records())), GOOD + 3)
        code, said = self.work()
        self.assertEqual(code, 1, said)
        self.check_whole()

    def test_an_object_store(self):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        self.addCleanup(server.stop)
        host, port = server.get_host_and_port()
        query = f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        footage, self.url = f"s3://footage/cameras{query}", f"s3://results/all{query}"
        files, path = located(footage)
        for bucket in ("footage", "results"):
            files.create_dir(bucket)
        for local in (self.footage / "00.mp4", self.footage / "broken.mp4"):
            with files.open_output_stream(f"{path}/{local.name}") as stream:
                stream.write(local.read_bytes())
        self.store = Store(self.url)
        code, said = self.work(footage=footage)
        self.assertEqual(code, 1, said)
        found = {Path(result["url"].split("?")[0]).name: result for result in self.results()}
        self.assertEqual({name: result["status"] for name, result in found.items()}, {"00.mp4": "done", "broken.mp4": "refused"})
        run = found["00.mp4"]["run_id"]
        kept = files.get_file_info(fs.FileSelector(f"results/all/runs/{run[4:6]}/{run}", recursive=True))
        self.assertEqual(len([one for one in kept if one.is_file]), 3 + found["00.mp4"]["stills"])
        code, said = self.work(footage=footage)
        self.assertEqual((code, self.called().total()), (0, 2), said)

    def test_files_that_kill_the_command(self):
        footage = self.dir / "deadly"
        footage.mkdir()
        for at, name in enumerate(["doomed", "flaky-1", "flaky-2", "fine"]):
            ffmpeg(footage / f"{name}.mp4", at)
        code, said = self.work("--retries", "2", footage=footage)
        self.assertEqual(code, 1, said)
        statuses = {Path(result["url"]).stem: result["status"] for result in self.results()}
        self.assertEqual(statuses, {"doomed": "failed", "flaky-1": "done", "flaky-2": "done", "fine": "done"})
        self.assertEqual(self.called(), {"doomed.mp4": 3, "flaky-1.mp4": 2, "flaky-2.mp4": 2, "fine.mp4": 1})
        code, said = self.work(footage=footage)
        self.assertEqual(code, 0, said)
        code, said = self.work("--again", footage=footage, program=SIGHTLINE)
        self.assertEqual(code, 0, said)
        self.assertEqual({result["status"] for result in self.results()}, {"done"})


if __name__ == "__main__":
    unittest.main()
