#!/usr/bin/env python3
"""Cost of the million events of one run, read whole over HTTP by curl and by the command line.

usage: benches/events.py path/to/described_log path/to/sightline-server path/to/sightline [ROUNDS]
Prints, for each, the time to the first byte, the whole time, the bytes, and the server's memory before and after (its peak too).
"""
import os, subprocess, sys, tempfile, time

maker, program, command = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
KEY = "key-of-the-bench"
RUN = f"run-{0:032x}"


def memory(process, name):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024


def whole(arguments, env=None):
    """Time to the first byte, whole time and bytes of what a command prints."""
    started, first, size = time.time(), None, 0
    with subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, bufsize=0) as reader:
        while piece := reader.stdout.read(1 << 20):
            first, size = first or time.time() - started, size + len(piece)
    assert reader.returncode == 0, reader.returncode
    return first, time.time() - started, size


with tempfile.TemporaryDirectory() as data:
    subprocess.run([maker, os.path.join(data, "log"), "1"], check=True)
    env = dict(os.environ, SERVICE_BIND_ADDR="127.0.0.1:0", SERVICE_DATA_DIR=data, SERVICE_API_KEYS=f"bench:{KEY}")
    server = subprocess.Popen([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        addr = next(line.split("listening addr=")[1].split()[0] for line in server.stdout if "listening addr=" in line)
        time.sleep(20)  # Search reads the log once after a start.
        ask = dict(os.environ, SIGHTLINE_SERVER=f"http://{addr}", SIGHTLINE_API_KEY=KEY)
        readers = {
            "curl": (["curl", "-fsSN", "-H", f"x-api-key: {KEY}", f"http://{addr}/v1/runs/{RUN}/events"], None),
            "sightline events": ([command, "events", "--json", RUN], ask),
        }
        for name, (arguments, given) in readers.items():
            for _ in range(rounds):
                before = memory(server, "VmRSS")
                with open(f"/proc/{server.pid}/clear_refs", "w") as peak:
                    peak.write("5")  # The peak begins anew.
                first, took, size = whole(arguments, given)
                print(
                    f"{name:>16}: first byte {first * 1000:.0f} ms, whole {took:.1f} s, {size / 1e6:.0f} MB; "
                    f"server {before:.0f} MB before, {memory(server, 'VmRSS'):.0f} after, {memory(server, 'VmHWM'):.0f} at most; "
                    f"load {os.getloadavg()[0]:.1f}"
                )
    finally:
        server.terminate()
        server.wait()
