"""Serves the model of `make_model.py` with llama.cpp on a free port; ends when its input does.

Arguments: the API key that it wants, and how many tokens of hidden reasoning precede an answer
(none when left out). The first line of its output is the base URL; what llama.cpp itself says
goes to its error output.
"""

import os
import pathlib
import sys
import tempfile

import make_model
import xllamacpp


def parameters(folder, key, thinking):
    """A server of four slots that draws the same words for the same request."""
    model, projector = make_model.write(folder)
    wanted = xllamacpp.CommonParams()
    wanted.model.path, wanted.mmproj.path = str(model), str(projector)
    wanted.model_alias = {"noise"}
    wanted.api_keys = [key]
    wanted.n_parallel = 4
    wanted.n_ctx = 4 * make_model.CONTEXT
    wanted.cpuparams.n_threads = 1
    wanted.sampling.seed = make_model.SEED
    # A word that was said is liked less: without that a draw without chance never ends.
    wanted.sampling.penalty_present = make_model.PENALTY
    wanted.sampling.penalty_last_n = make_model.CONTEXT
    wanted.enable_reasoning = int(thinking > 0)
    if thinking > 0:
        wanted.sampling.reasoning_budget_tokens = thinking
    return wanted


def main(key, thinking="0"):
    with tempfile.TemporaryDirectory() as folder:
        server = xllamacpp.Server(parameters(pathlib.Path(folder), key, int(thinking)))
    # It holds the files open: gone from the folder, they leave nothing behind when it is killed.
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # Requests may be under way: nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
