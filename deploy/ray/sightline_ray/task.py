"""The work on one file, on whichever machine Ray gives it to."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass

from .store import Store, is_local, located

# Exit code of `sightline analyze` for media that it has read and refuses: another attempt would end alike.
REFUSED = 5
MESSAGE_MAX = 2000


@dataclass(frozen=True)
class Job:
    """What is asked of each file."""

    store: str
    program: str
    version: str
    options: tuple = ()
    threads: int = 1
    stills: bool = True


@dataclass(frozen=True)
class Source:
    """A file as it was found."""

    url: str
    bytes: int
    modified_ns: int


class Failed(Exception):
    """An attempt that another may follow."""


def run_id(job, source):
    """Names the result after the request: the same file, options and version have the same name."""
    request = [asdict(source), job.options, job.stills, job.version]
    return "run-" + hashlib.sha256(json.dumps(request).encode()).hexdigest()[:32]


def record(job, source, /, **rest):
    return {"run_id": run_id(job, source), **asdict(source), "options": job.options, "version": job.version, **rest}


def analyse(job, source):
    """Analyses a file and stores what was found; returns the record."""
    store, run, started = Store(job.store), run_id(job, source), time.monotonic()
    files, path = located(source.url)
    if known := store.find(run):
        # Of an attempt whose machine died after it, or of another driver.
        return known
    with store.scratch() as folder, nullcontext() if is_local(files) else store.scratch() as fetched:
        if fetched:
            path = fetch(files, path, fetched / os.path.basename(path))
        # The command ends with this process, even where that is killed.
        command = ["setpriv", "--pdeathsig", "KILL", "--", job.program, "analyze", path, "--run-id", run, "--json", "--no-signals"]
        command += ["--threads", str(job.threads), "--parquet", folder, *job.options]
        command += ["--stills", folder / "stills"] if job.stills else []
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        said = done.stderr.decode(errors="replace").strip()[-MESSAGE_MAX:]
        spent = {"node": socket.gethostname(), "seconds": round(time.monotonic() - started, 3)}
        if done.returncode == REFUSED:
            result = record(job, source, status="refused", error=said, **spent)
        elif done.returncode:
            raise Failed(f"{socket.gethostname()}: exit code {done.returncode}: {said}")
        else:
            document = json.loads(done.stdout)
            found = {name: document[name] for name in ("source", "decoder", "sampling", "frames")}
            counts = {name: len(document[name]) for name in ("episodes", "markers", "stills")}
            # A copy's, where the file was fetched.
            del found["source"]["path"]
            result = record(job, source, status="done", **found, **counts, **spent)
            store.keep(run, folder)
    store.record(result)
    return result


def fetch(files, path, into):
    """Copies a file of an object store to this machine."""
    with files.open_input_stream(path) as stream, open(into, "wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return into
