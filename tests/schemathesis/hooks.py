"""What the contract says and JSON Schema cannot, for schemathesis."""

import re
import uuid

import schemathesis


def whole(value):
    """`value` with integers written as integers: the contract refuses `1.0` where it asks for one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return whole(body)


@schemathesis.hook
def before_call(context, case, kwargs):
    """A key that was sent before with another body is refused, and short keys are drawn again and again."""
    key = (case.headers or {}).get("idempotency-key")
    if isinstance(key, str) and re.fullmatch("[!-~]{1,255}", key):
        case.headers["idempotency-key"] = uuid.uuid4().hex
