"""What the contract says and JSON Schema cannot, for schemathesis."""

import itertools
import json
import re
import uuid
import zlib

import schemathesis
import urllib3.connectionpool
import urllib3.util.connection

# Wrong keys of one address are limited, and the tool sends many: each request comes from an address of its own.
ADDRESSES = itertools.count(1)
connect = urllib3.util.connection.create_connection


def connect_from_next(address, timeout=None, source_address=None, socket_options=None):
    number = next(ADDRESSES) % 60_000
    source = (f"127.1.{number // 250}.{number % 250 + 1}", 0)
    return connect(address, timeout, source, socket_options)


def close_when_done(pool, connection):
    if connection is not None:
        connection.close()


urllib3.util.connection.create_connection = connect_from_next
urllib3.connectionpool.HTTPConnectionPool._put_conn = close_when_done

# What the server that is tested has: a schema cannot name it.
MODELS = ("model", "first_pass_model", "second_pass_model")
RESOLVES = {"source_uri": "talk.mp4"} | {name: "qwen3-vl-4b" for name in MODELS}
# A model that answers at once is not asked in less than this: an answer that is late is a failure of the backend.
TIMEOUT_MS = 20_000


def whole(value):
    """`value` with integers written as integers: the contract refuses `1.0` where it asks for one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


def resolved(value):
    """`value` with names that the server knows instead of valid ones that nobody gave, three times of four."""
    if isinstance(value, list):
        return [resolved(item) for item in value]
    if not isinstance(value, dict):
        return value
    made_up = zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode()) % 4 == 0
    found = {}
    for key, item in value.items():
        if key in RESOLVES and isinstance(item, str) and 1 <= len(item) <= 128 and not made_up:
            item = RESOLVES[key]
        elif key == "timeout_ms" and type(item) is int and 1 <= item < TIMEOUT_MS:
            item = TIMEOUT_MS
        elif key == "output_schema" and isinstance(item, dict):
            # The model says the same to every schema; tests/api/infer.rs has answers that fit and some that do not.
            item = {"type": "object"}
        elif key == "requests":
            item = resolved(item)
        found[key] = item
    return found


@schemathesis.hook
def map_body(context, body):
    return resolved(whole(body))


@schemathesis.hook
def before_call(context, case, kwargs):
    """A key that was sent before with another body is refused, and short keys are drawn again and again."""
    key = (case.headers or {}).get("idempotency-key")
    if isinstance(key, str) and re.fullmatch("[!-~]{1,255}", key):
        case.headers["idempotency-key"] = uuid.uuid4().hex
