"""Asks a server of a model of noise everything once and keeps its replies as they come.

Arguments: the base URL, the API key, a JPEG, and the folder that the replies go to: a file each,
`NAME.STATUS.json`.
"""

import base64
import json
import pathlib
import sys
import urllib.error
import urllib.request

TEXTS = {"type": "string", "maxLength": 200}
FINDING = {
    "type": "object",
    "properties": {
        "event_type": {"type": "string", "maxLength": 64},
        "object_label": {"type": "string", "maxLength": 64},
        "summary": TEXTS,
        "description": TEXTS,
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["event_type", "object_label", "summary", "description", "confidence"],
    "additionalProperties": False,
}


def schema(wanted):
    shape = {"name": "finding", "strict": True, "schema": wanted}
    return {"response_format": {"type": "json_schema", "json_schema": shape}}


def parts(pictures):
    """A text, and pictures that each follow their caption."""
    found = [{"type": "text", "text": "Describe what happens."}]
    for index, picture in enumerate(pictures):
        coded = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
        found.append({"type": "text", "text": f"Picture {index + 1}, at {index}.000 s:"})
        found.append({"type": "image_url", "image_url": {"url": coded}})
    return found


def chats(jpeg):
    """Name and body of every chat."""
    thinks = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget_tokens": 8}
    return {
        "plain": ("What is this?", {"max_tokens": 100}),
        "length": ("What is this?", {"max_tokens": 2}),
        "greedy": ("What is this?", {"max_tokens": 200, "temperature": 0}),
        "schema": ("What is this?", {"max_tokens": 400, **schema(FINDING)}),
        "schema_cut": ("What is this?", {"max_tokens": 40, **schema(FINDING)}),
        "json_object": ("What?", {"max_tokens": 400, "response_format": {"type": "json_object"}}),
        "pictures": (parts([jpeg, jpeg]), {"max_tokens": 400, **schema(FINDING)}),
        "described": (parts([jpeg]), {"max_tokens": 20}),
        "thinking": ("What?", {"max_tokens": 400, **thinks, **schema(FINDING)}),
        "thinking_only": ("What?", {"max_tokens": 5, **thinks}),
        "another_model": ("What is this?", {"model": "another", "max_tokens": 100}),
        "no_picture": (parts([b"no JPEG"]), {}),
        "schema_refused": ("What is this?", schema({"type": "nonsense"})),
        "too_long": ("word " * 8000, {}),
    }


def ask(url, key, body):
    """Status and text of the reply to a `GET`, or to a `POST` of a body."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def main(base, key, picture, folder):
    jpeg = pathlib.Path(picture).read_bytes()
    chat = base + "/v1/chat/completions"
    replies = {
        "models": ask(base + "/v1/models", key, None),
        "wrong_key": ask(chat, "wrong", b"{}"),
        "malformed": ask(chat, key, b'{"model": '),
        "no_messages": ask(chat, key, b'{"model": "noise"}'),
        "unknown_path": ask(base + "/v1/nothing", key, None),
    }
    for name, (content, more) in chats(jpeg).items():
        messages = [{"role": "user", "content": content}]
        body = {"model": "noise", "messages": messages, **more}
        replies[name] = ask(chat, key, json.dumps(body).encode())
    for name, (status, text) in replies.items():
        (pathlib.Path(folder) / f"{name}.{status}.json").write_bytes(text.rstrip() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
