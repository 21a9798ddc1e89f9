"""python -m sightline_ray FOOTAGE... STORE: analyses every file once, on all machines of a Ray cluster."""

import argparse
import fnmatch
import subprocess
import sys
import time
from pathlib import Path

import ray
from pyarrow import fs

from .store import Store, located
from .task import Failed, Job, Source, analyse, record, run_id

VIDEOS = "*.264,*.265,*.avi,*.h264,*.h265,*.hevc,*.m2ts,*.m4v,*.mkv,*.mov,*.mp4,*.mpg,*.mts,*.ts,*.webm"
# Tasks under way or queued, for each CPU of the cluster.
QUEUED = 4


def arguments():
    parser = argparse.ArgumentParser(prog="python -m sightline_ray", description=__doc__.split(": ")[1], epilog="Options after -- are those of `sightline analyze`, such as --fps 1.")
    parser.add_argument("footage", nargs="+", help="files, folders or URLs (s3://bucket/prefix), which every machine sees alike")
    parser.add_argument("store", help="folder that every machine sees, or URL, for the results")
    parser.add_argument("--address", help="address of the cluster; without one, a cluster of this machine is started")
    parser.add_argument("--program", default="sightline", help="the command on each machine")
    parser.add_argument("--match", default=VIDEOS, help="names of files to take from folders")
    parser.add_argument("--threads", type=int, default=1, help="cores for each file")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each file, also a part of one")
    parser.add_argument("--retries", type=int, default=3, help="attempts after the first, where a machine or a command dies")
    parser.add_argument("--again", action="store_true", help="also take the files whose record says that they failed")
    parser.add_argument("--no-stills", action="store_true")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    args.options = tuple(sys.argv[at + 1 :])
    return args


def sources(footage, match):
    """The files of folders and URLs, in the order of their names."""
    patterns = match.split(",")
    for url in footage:
        files, path = located(url)
        before, after = url.split(path, 1) if "://" in url else ("", "")
        (found,) = files.get_file_info([path])
        if found.type == fs.FileType.NotFound:
            sys.exit(f"sightline_ray: no {url}")
        entries = [found] if found.is_file else files.get_file_info(fs.FileSelector(path, recursive=True))
        for entry in sorted(entries, key=lambda entry: entry.path):
            if entry.is_file and (entry is found or any(fnmatch.fnmatch(entry.base_name.lower(), one) for one in patterns)):
                yield Source(before + entry.path + after, entry.size, entry.mtime_ns or 0)


class Progress:
    """A bar where somebody looks, else a line now and then."""

    def __init__(self, total):
        self.total, self.counts, self.started, self.told = total, {}, time.monotonic(), 0.0
        self.every = 0.2 if sys.stderr.isatty() else 10

    def add(self, status):
        self.counts[status] = self.counts.get(status, 0) + 1
        done = sum(self.counts.values())
        if time.monotonic() - self.told >= self.every or done == self.total:
            self.told = time.monotonic()
            self.tell(done)

    def tell(self, done):
        spent = self.told - self.started
        left = spent / done * (self.total - done)
        bar = "#" * (30 * done // self.total)
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        line = f"[{bar:30}] {done}/{self.total} files ({counts}), {done / spent:.1f}/s, {left / 60:.0f} min left"
        print(f"\r{line}\033[K" if self.every < 1 else line, end="\n" if self.every >= 1 or done == self.total else "", file=sys.stderr, flush=True)


def work(args, job, store):
    """Has each file analysed once; yields what became of it."""
    finished = set() if args.again else store.finished()
    if args.again:
        for path in store.records():
            result = store.read(path)
            store.forget(path) if result["status"] != "done" else finished.add(result["run_id"])
    todo = [source for source in sources(args.footage, args.match) if run_id(job, source) not in finished]
    print(f"sightline_ray: {len(todo)} files to analyse, {len(finished)} results are there", file=sys.stderr)
    if not todo:
        return
    package = str(Path(__file__).parent)
    ray.init(address=args.address, runtime_env={"py_modules": [package]}, log_to_driver=False, logging_level="warning")
    needs = {"num_cpus": args.threads, "num_gpus": args.gpus, "scheduling_strategy": "SPREAD"}
    task = ray.remote(max_retries=args.retries, retry_exceptions=[Failed], **needs)(analyse)
    progress, todo, pending = Progress(len(todo)), iter(todo), {}
    while True:
        window = QUEUED * int(ray.cluster_resources().get("CPU", 1))
        while len(pending) < window and (source := next(todo, None)):
            pending[task.remote(job, source)] = source
        if not pending:
            return
        ready, _ = ray.wait(list(pending), timeout=5)
        for done in ready:
            result = outcome(job, store, done, pending.pop(done))
            progress.add(result["status"])
            yield result


def outcome(job, store, done, source):
    try:
        return ray.get(done)
    except (ray.exceptions.RayError, Failed) as error:
        cause = getattr(error, "cause", None) or error
        result = record(job, source, status="failed", error=str(cause)[:2000])
        store.record(result)
        return result


def main():
    args = arguments()
    try:
        version = subprocess.run([args.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"sightline_ray: {args.program} does not run here: {error}; name it with --program")
    store = Store(args.store)
    store.sweep()
    job = Job(args.store, args.program, version, args.options, args.threads, not args.no_stills)
    bad = 0
    for result in work(args, job, store):
        bad += result["status"] != "done"
    if bad:
        sys.exit(f"sightline_ray: {bad} files have no result; their records in {args.store}/results say why")


if __name__ == "__main__":
    main()
