"""Prints an Arrow IPC stream as the JSON that it stands for, read by pyarrow."""

import json
import sys

import pyarrow as pa


def nested(row):
    """The record whose values have their paths as names."""
    record = {}
    for path, value in row.items():
        *outer, name = path.split(".")
        at = record
        for key in outer:
            at = at.setdefault(key, {})
        at[name] = value
    return record


reader = pa.ipc.open_stream(sys.stdin.buffer)
batches = list(reader)
for batch in batches:
    batch.validate(full=True)
rows = [nested(row) for batch in batches for row in batch.to_pylist()]
about = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
types = {field.name: str(field.type) for field in reader.schema}
print(json.dumps({"about": about, "types": types, "batches": len(batches), "rows": rows}))
