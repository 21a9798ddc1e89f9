#!/usr/bin/env python3
"""Cost of models to a decoding: `bound` for good ones, `chaos` for all the ways in which they fail.

usage: benches/reason.py bound|chaos SERVER VIDEO [SECONDS]
bound: reasonings over the first 60 s of VIDEO, a model that takes 200 ms, four asks at once: the time over the
larger of decoding alone and ceil(chunks / 4) x 200 ms; ends with 1 where one passes 1.15.
chaos: for SECONDS (600), decodings of VIDEO beside reasonings and questions whose model fails in every way, in
alternating pairs with the same where it works, and with none; ends with 1 where failures cost a decoding more
than 2 %, a run is stuck or a place is not given back.
"""
import http.client, json, math, os, random, socket, statistics, subprocess, sys, tempfile, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mode, server_binary, video = sys.argv[1:4]
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 600
FINDING = {"event_type": "van_waits", "object_label": "van", "summary": "A van waits.", "description": "A van.", "confidence": 0.9}


def answer(text, reason="stop"):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    usage = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
    return json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()


GOOD = answer(json.dumps(FINDING))
draws, is_bad, asked = random.Random(7), False, 0


class Model(BaseHTTPRequestHandler):
    """Answers after 200 ms; while `is_bad`, draws one of the ways to fail."""

    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in (("content-type", "application/json"), ("content-length", len(body)), *headers):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self, raw=b""):
        self.wfile.write(raw)
        self.wfile.flush()
        self.close_connection = True

    def do_GET(self):
        self.reply(200, json.dumps({"object": "list", "data": [{"id": "qwen3-vl-8b"}]}).encode())

    def do_POST(self):
        global asked
        asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        if not is_bad:
            time.sleep(0.2)
            return self.reply(200, GOOD)
        time.sleep(draws.uniform(0.05, 0.4))
        way = draws.randrange(14)
        if way < 3:
            self.reply(200, GOOD)
        elif way == 3:
            self.reply(500, b"<html>no</html>", [("content-type", "text/html")])
        elif way == 4:
            self.reply(429, b"{}", [("retry-after", "0")])
        elif way == 5:
            self.reply(200, answer("{"))
        elif way == 6:
            self.reply(200, answer('{"event_type": []}'))
        elif way == 7:
            time.sleep(6)
            self.hang_up()
        elif way == 8:
            self.hang_up()
        elif way == 9:
            self.hang_up(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{")
        elif way == 10:
            self.hang_up(b"not HTTP\r\n\r\n")
        elif way == 11:
            self.reply(200, answer(json.dumps(FINDING), "length"))
        elif way == 12:
            self.reply(404, b'{"error": {"message": "no such model"}}')
        else:
            self.reply(200, answer("x" * 10_000_000))


class Models(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, *_):
        pass


class Server:
    def __init__(self, work, model):
        env = dict(
            os.environ, SERVICE_DATA_DIR=f"{work}/data", SERVICE_BIND_ADDR="127.0.0.1:0", SERVICE_REQUIRE_API_KEY="false", SERVICE_METRICS_REQUIRE_API_KEY="false",
            SERVICE_ACTIVE_STREAM_LIMIT="64", SERVICE_REASON_OUTAGE_MS=("1000" if mode == "chaos" else "60000"),
            SERVICE_INGEST_FILE_ROOTS=os.path.dirname(os.path.abspath(video)), SERVICE_VLLM_BASE_URL=f"http://127.0.0.1:{model}",
        )
        self.log = open(f"{work}/log", "w")
        self.process = subprocess.Popen([server_binary], env=env, stdout=self.log, stderr=self.log)
        while "listening addr=" not in (said := open(f"{work}/log").read()):
            assert self.process.poll() is None, said
            time.sleep(0.05)
        self.address = said.split("listening addr=")[1].split()[0]

    def call(self, method, path, body=None):
        host, port = self.address.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=600)
        connection.request(method, path, json.dumps(body) if body is not None else None, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, (path, response.status, text)
        return text

    def run(self):
        return json.loads(self.call("POST", "/v1/runs", {}))["run_id"]

    def timed(self, path, body):
        run, started = self.run(), time.monotonic()
        text = self.call("POST", f"/v1/runs/{run}/{path}", body)
        return time.monotonic() - started, run, json.loads(text)

    def ingest(self, frames):
        body = {"source_uri": os.path.basename(video), "max_frames": frames}
        took, run, _ = self.timed("ingest", body)
        self.call("DELETE", f"/v1/runs/{run}")
        return took

    def measured_ingest(self, frames):
        """Its wall time, and the CPU time of the workers that end meanwhile: its own, where no other does."""
        before = self.ended_cpu_s()
        took = self.ingest(frames)
        return took, self.ended_cpu_s() - before

    def ended_cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def reason(self, frames, chunk, **more):
        body = {"source_uri": os.path.basename(video), "max_frames": frames, "model": "qwen3-vl-8b",
                "semantic_prompt": "What moves?", "chunk_size": chunk, "vlm_concurrency": 4, **more}
        return self.timed("reason", body)

    def gauges(self, prefix):
        lines = self.call("GET", "/v1/metrics").decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line.startswith(prefix))
        return {name: float(value) for name, value in pairs}

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1000


def bound(server):
    decodes = [server.ingest(1800) for _ in range(3)]
    print(f"decoding alone: {', '.join(f'{took:.2f}' for took in decodes)} s")
    worst = 0
    for chunk in (60, 30, 10, 5):
        ratios = []
        for _ in range(3):
            took, _, answer = server.reason(1800, chunk)
            chunks = math.ceil(1800 / chunk)
            ratios.append(took / max(min(decodes), math.ceil(chunks / 4) * 0.2))
        worst = max(worst, statistics.median(ratios))
        print(f"{chunk} frames a chunk, {chunks} chunks: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    return worst > 1.15


class Load:
    """Begins something every `every` seconds, whatever becomes of what began before; `MOST` at once."""

    MOST = 16

    def __init__(self, every, begin):
        self.every, self.begin, self.ends, self.under_way = every, begin, threading.Event(), set()
        self.pacer = threading.Thread(target=self.pace, daemon=True)

    def pace(self):
        while not self.ends.wait(self.every):
            self.under_way = {one for one in self.under_way if one.is_alive()}
            if len(self.under_way) < self.MOST:
                one = threading.Thread(target=self.begin, daemon=True)
                one.start()
                self.under_way.add(one)

    def __enter__(self):
        self.pacer.start()
        time.sleep(1)

    def __exit__(self, *_):
        self.ends.set()
        self.pacer.join()
        [one.join() for one in self.under_way]


FRAMES = 1800


def paired(name, pairs):
    ratios = sorted(a / b for a, b in pairs)
    middle = statistics.median(ratios)
    quarters = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    print(f"{name}: {middle:.3f} (half of them {quarters[0]:.3f} to {quarters[1]:.3f}), {len(ratios)} pairs", flush=True)
    return middle


def chaos(server):
    """Cost of failing models to a decoding that asks none of them.

    Wall time: beside reasonings that begin at a fixed pace, models failing over models working.
    Work: seconds of CPU of the decoding's worker, beside questions that fail over questions that
    are answered, and over none.
    """
    global is_bad
    runs, batches, lock = [], 0, threading.Lock()
    batch = {"requests": [{"model": "qwen3-vl-8b", "prompt": "p", "timeout_ms": 500}] * 8, "max_parallel": 8}

    def reasoning():
        _, run, _ = server.reason(40, 5, semantic_timeout_ms=500)
        with lock:
            runs.append(run)

    def questions():
        nonlocal batches
        server.call("POST", "/v1/infer/batch", batch)
        batches += 1

    def decoding(bad, load=None):
        """Wall time of a decoding, and CPU seconds of the workers that ended meanwhile."""
        global is_bad
        is_bad = bad
        if load is None:
            return server.measured_ingest(FRAMES)
        with load:
            return server.measured_ingest(FRAMES)

    server.ingest(FRAMES)
    walls, work, alone, before = [], [], [], server.resident_mb()
    until, turn = time.monotonic() + seconds, False
    while time.monotonic() < until:
        turn = not turn
        tries = {bad: None for bad in (turn, not turn)}
        for bad in tries:
            tries[bad] = decoding(bad, Load(0.5, reasoning))[0]
        walls.append((tries[True], tries[False]))
        for bad in tries:
            tries[bad] = decoding(bad, Load(0.2, questions))[1]
        work.append((tries[True], tries[False]))
        alone.append((tries[True], decoding(False)[1]))
    wall = paired("wall time of a decoding beside reasonings, models failing over working", walls)
    cpu = paired("CPU time of a decoding beside questions, models failing over working", work)
    paired("the same over no questions at all", alone)
    cost = statistics.median(work for _, work in alone) / FRAMES
    print(f"CPU time of a decoded frame with nothing beside it: {cost * 1e6:.0f} us")
    states = {json.loads(server.call("GET", f"/v1/runs/{run}/state"))["state"] for run in runs}
    left = server.gauges("service_inference_")
    left = {name: value for name, value in left.items() if any(word in name for word in ("in_flight", "waiting"))}
    print(f"{len(runs)} reasonings, {batches} batches, {asked} questions, states {states}, left {left}")
    print(f"resident: {before:.0f} -> {server.resident_mb():.0f} MB")
    return states != {"completed"} or any(left.values()) or max(wall, cpu) > 1.02


models = Models(("127.0.0.1", 0), Model)
threading.Thread(target=models.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as work:
    server = Server(work, models.server_address[1])
    try:
        failed = {"bound": bound, "chaos": chaos}[mode](server)
    finally:
        server.process.terminate()
        server.process.wait()
sys.exit(failed)
