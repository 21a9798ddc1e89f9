#!/usr/bin/env python3
"""Resources that WHIP publishers that come and go, and offers without a publisher, leave in a server.

usage: benches/whip.py SERVER SIGHTLINE VIDEO [SESSIONS [OFFERS]]
Rounds of SESSIONS (1000) publications, eight at once, each connected, decoded and ended; then rounds of OFFERS (10000)
without a publisher behind them. Prints memory, descriptors, threads and children of the server after each round.
"""
import concurrent.futures, http.client, os, re, subprocess, sys, tempfile, threading, time

server_binary, sightline, video = sys.argv[1:4]
sessions = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
offers = int(sys.argv[5]) if len(sys.argv) > 5 else 10_000
KEYS, AT_ONCE, LIMIT = 16, 8, 1024
SDP = "\r\n".join([
    "v=0", "o=- 42 2 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0", "a=msid-semantic: WMS",
    "m=video 9 UDP/TLS/RTP/SAVPF 96", "c=IN IP4 0.0.0.0", "a=rtcp:9 IN IP4 0.0.0.0", "a=ice-ufrag:abcd",
    "a=ice-pwd:abcdefghijklmnopqrstuvwx", "a=fingerprint:sha-256 " + ":".join(["AB"] * 32), "a=setup:actpass", "a=mid:0",
    "a=sendonly", "a=rtcp-mux", "a=rtpmap:96 H264/90000",
    "a=fmtp:96 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f", "a=rtcp-fb:96 nack",
    "a=rtcp-fb:96 nack pli", "",
])

data = tempfile.TemporaryDirectory()
keys = ",".join(f"user{at}:key-{at:04}-{'x' * 24}" for at in range(KEYS))
environ = dict(os.environ, SERVICE_DATA_DIR=os.path.join(data.name, "data"), SERVICE_BIND_ADDR="127.0.0.1:0", SERVICE_API_KEYS=keys,
               SERVICE_RATE_LIMIT_GLOBAL_RPS="0", SERVICE_RATE_LIMIT_TENANT_RPS="0",
               SERVICE_ACTIVE_STREAM_LIMIT=str(LIMIT), SERVICE_MEDIA_MEMORY_BUDGET_BYTES=str(1 << 40), RUST_LOG="info")
log = open(os.path.join(data.name, "server.log"), "w")
server = subprocess.Popen([server_binary], env=environ, stdout=log, stderr=subprocess.DEVNULL)


def address():
    while True:
        with open(log.name) as lines:
            found = re.search(r"listening.*?addr=\S*?(127\.0\.0\.1:\d+)", lines.read())
        if found:
            return found[1]
        assert server.poll() is None, "the server has not started"
        time.sleep(0.05)


addr = address()
key = lambda at: f"key-{at % KEYS:04}-{'x' * 24}"
local = threading.local()


def call(method, path, body=None, at=0, content="application/sdp"):
    # The server closes one that was idle for long.
    if time.time() - getattr(local, "used", 0) > 5:
        local.line = http.client.HTTPConnection(addr)
    headers = {"authorization": f"Bearer {key(at)}"} | ({"content-type": content} if body else {})
    local.line.request(method, path, body, headers)
    answer = local.line.getresponse()
    local.used = time.time()
    return answer.status, answer.read()


def figure(name):
    text = call("GET", "/v1/metrics")[1].decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def settled():
    """Returns the resources of the server once no session and no worker of one is left."""
    started = time.time()
    while figure("service_live_sessions ") or figure("service_live_workers "):
        assert time.time() - started < 300, "sessions stay"
        time.sleep(0.2)
    time.sleep(2)
    proc = f"/proc/{server.pid}"
    with open(f"{proc}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    kilobytes = lambda name: int(fields[name].split()[0])
    with open(f"{proc}/task/{server.pid}/children") as children:
        mine = len(children.read().split())
    others = sum(len(open(f"{proc}/task/{task}/children").read().split()) for task in os.listdir(f"{proc}/task"))
    return (f"{kilobytes('RssAnon') / 1024:.1f} MiB anonymous, {len(os.listdir(f'{proc}/fd'))} descriptors, "
            f"{kilobytes('Threads')} threads, {max(mine, others)} children")


def publish(at):
    url = f"http://{addr}/v1/stream/whip"
    command = [sightline, "whip", "publish", video, url, "--count", str(AT_ONCE), "--seconds", "1"]
    ended = subprocess.run(command, env=dict(environ, SIGHTLINE_API_KEY=key(at)), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


publish(0)
print(f"at rest: {settled()}")
for round_ in range(3):
    started = time.time()
    for at in range(sessions // AT_ONCE):
        publish(at)
    took = time.time() - started
    ended, connected = figure("service_live_sessions_ended_total"), figure("service_live_connected_total")
    print(f"{sessions} publications in {took:.0f} s, {connected:.0f} connected and {ended:.0f} ended by now: {settled()}")
for round_ in range(3):
    started = time.time()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda at: call("POST", "/v1/stream/whip", SDP, at)[0], range(offers)))
    with open(f"/proc/{server.pid}/status") as status:
        anonymous = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
    counts = {status: told.count(status) for status in sorted(set(told))}
    print(f"{offers} offers in {time.time() - started:.0f} s: {counts}, {figure('service_live_sessions '):.0f} sessions, "
          f"{anonymous / 1024:.1f} MiB anonymous")
    print(f"after their time: {settled()}")
server.terminate()
server.wait()
