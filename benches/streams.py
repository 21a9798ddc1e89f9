#!/usr/bin/env python3
"""Cost of idle event streams to a running server: memory, processor, and the time to tell all.

usage: benches/streams.py ADDR:PORT PID KEY [STREAMS [SECONDS]]
Opens the streams over plain sockets, waits, then appends one event and waits until all have it.
"""
import json, resource, select, socket, sys, time, urllib.request

addr, pid, key = sys.argv[1:4]
streams = int(sys.argv[4]) if len(sys.argv) > 4 else 10_000
seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 60
host, port = addr.rsplit(":", 1)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def post(path):
    headers = {"x-api-key": key, "content-type": "application/json"}
    request = urllib.request.Request(f"http://{addr}{path}", b"{}", headers, method="POST")
    return json.load(urllib.request.urlopen(request))


def memory_kb():
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def cpu_seconds():
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


run = post("/v1/runs")["run_id"]
before, started = memory_kb(), time.time()
sockets = []
for _ in range(streams):
    stream = socket.create_connection((host, int(port)))
    head = f"GET /v1/runs/{run}/events/stream HTTP/1.1\r\nhost: {host}\r\nx-api-key: {key}\r\n\r\n"
    stream.sendall(head.encode())
    sockets.append(stream)
for stream in sockets:
    answer = stream.recv(4096)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
after = memory_kb()
each = (after - before) / streams
print(f"{streams} streams in {time.time() - started:.1f} s: {before} -> {after} kB, {each:.1f} kB each")

cpu, started = cpu_seconds(), time.time()
time.sleep(seconds)
share = (cpu_seconds() - cpu) / (time.time() - started)
print(f"idle for {seconds:.0f} s: {share:.2%} of a core, {memory_kb()} kB")

waiting = {stream.fileno(): stream for stream in sockets}
told = {number: b"" for number in waiting}
poll = select.epoll()
for number in waiting:
    poll.register(number, select.EPOLLIN)
cpu, started = cpu_seconds(), time.time()
post(f"/v1/runs/{run}/keepalive")
acknowledged = time.time() - started
while waiting and time.time() < started + 60:
    for number, _ in poll.poll(1):
        told[number] += waiting[number].recv(65536)
        if b"keepalive_refreshed" in told[number]:
            poll.unregister(number)
            del waiting[number]
took = time.time() - started
print(
    f"one event: acknowledged in {acknowledged * 1000:.1f} ms, told to "
    f"{streams - len(waiting)} in {took:.2f} s with {cpu_seconds() - cpu:.2f} s of processor"
)
sys.exit(bool(waiting))
