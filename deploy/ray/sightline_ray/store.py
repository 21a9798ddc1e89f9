"""Where results are kept: a folder, or an object store that Arrow reads. A result counts from when its record is there.

results/ab/run-ab....json    one a file, written last
runs/ab/run-ab.../           frames.parquet, episodes.parquet, markers.parquet, stills/
.aside/                      of a folder only: what is not whole yet
"""

import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

# No analysis lasts longer: what is older is of an attempt that died.
ABANDONED_S = 24 * 3600


def located(url):
    """The file system of a path or a URL, and the path there."""
    if "://" in url:
        return fs.FileSystem.from_uri(url)
    return fs.LocalFileSystem(), os.path.abspath(url)


def is_local(files):
    return isinstance(files, fs.LocalFileSystem)


class Store:
    def __init__(self, url):
        self.files, self.root = located(url)
        self.aside = f"{self.root}/.aside" if is_local(self.files) else None
        if self.aside:
            os.makedirs(self.aside, exist_ok=True)

    def records(self):
        """The paths of all records."""
        for shard in self._list(f"{self.root}/results"):
            yield from (found.path for found in self._list(shard.path))

    def finished(self):
        """The run ids that have a record."""
        return {os.path.basename(path).removesuffix(".json") for path in self.records()}

    def find(self, run):
        """The record of a run, if there is one."""
        path = self._record(run)
        return self.read(path) if self.files.get_file_info([path])[0].is_file else None

    def read(self, path):
        with self.files.open_input_stream(path) as stream:
            return json.loads(stream.read())

    def forget(self, path):
        """Takes a record back, so that its file is analysed again."""
        self.files.delete_file(path)

    @contextmanager
    def scratch(self):
        """A folder of this machine to write a result into; on the store itself where that can be."""
        folder = tempfile.mkdtemp(prefix="sightline-", dir=self.aside)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, run, folder):
        """Stores what `folder` holds as the result of `run`. A repeat changes nothing: the same request gives the same bytes."""
        into = f"{self.root}/runs/{run[4:6]}/{run}"
        if not self.aside:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                with self.files.open_output_stream(f"{into}/{path.relative_to(folder)}") as stream:
                    stream.write(path.read_bytes())
            return
        for path in folder.rglob("*"):
            synced(path)
        os.chmod(folder, 0o755)
        os.makedirs(os.path.dirname(into), exist_ok=True)
        try:
            os.rename(folder, into)
        except OSError:
            # Another attempt was first.
            if not os.path.isdir(into):
                raise
        synced(os.path.dirname(into))

    def record(self, record):
        """Writes the record of a run, whole or not at all."""
        into = self._record(record["run_id"])
        text = json.dumps(record, ensure_ascii=False, indent=1).encode()
        if not self.aside:
            with self.files.open_output_stream(into) as stream:
                stream.write(text)
            return
        os.makedirs(os.path.dirname(into), exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=self.aside)
        with os.fdopen(handle, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(handle)
        os.chmod(aside, 0o644)
        os.replace(aside, into)
        synced(os.path.dirname(into))

    def sweep(self):
        """Removes what attempts that died have left aside."""
        for entry in os.scandir(self.aside) if self.aside else ():
            if time.time() - entry.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(entry.path, ignore_errors=True) if entry.is_dir() else os.unlink(entry.path)

    def _record(self, run):
        return f"{self.root}/results/{run[4:6]}/{run}.json"

    def _list(self, path):
        return self.files.get_file_info(fs.FileSelector(path, allow_not_found=True))


def synced(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
