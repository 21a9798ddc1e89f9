#!/usr/bin/env python3
"""What models add to a decoding: `bound` for good ones, `chaos` for all the ways in which they fail.

usage: benches/reason.py bound|chaos SERVER VIDEO [SECONDS]
bound: reasonings over the first 60 s of VIDEO, a model that takes 200 ms, four asks at once: the time over the
larger of decoding alone and ceil(chunks / 4) x 200 ms; ends with 1 where one passes 1.15.
chaos: for SECONDS (600), decodings of VIDEO alone and beside reasonings whose model fails in every way, in
alternating pairs; ends with 1 where a run is stuck or a place is not given back.
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
        answer = json.loads(self.call("POST", f"/v1/runs/{run}/{path}", body))
        return time.monotonic() - started, run, answer

    def ingest(self, frames):
        body = {"source_uri": os.path.basename(video), "max_frames": frames}
        took, run, _ = self.timed("ingest", body)
        self.call("DELETE", f"/v1/runs/{run}")
        return took

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


def chaos(server):
    global is_bad
    stop, runs, lock = threading.Event(), [], threading.Lock()
    beside = threading.Event()

    def loop():
        while not stop.is_set():
            if not beside.wait(1):
                continue
            _, run, _ = server.reason(40, 5, semantic_timeout_ms=500)
            with lock:
                runs.append(run)

    loops = [threading.Thread(target=loop, daemon=True) for _ in range(3)]
    [one.start() for one in loops]
    server.ingest(900)
    is_bad, until, pairs, before = True, time.monotonic() + seconds, [], server.resident_mb()
    while time.monotonic() < until:
        beside.set()
        time.sleep(2)
        disturbed = server.ingest(900)
        beside.clear()
        while server.gauges("service_inference_in_flight") and any(server.gauges("service_inference_in_flight").values()):
            time.sleep(0.2)
        pairs.append(disturbed / server.ingest(900))
    print(f"decoding beside over alone: median {statistics.median(pairs):.3f} of {len(pairs)} pairs", flush=True)
    stop.set()
    [one.join() for one in loops]
    states = {json.loads(server.call("GET", f"/v1/runs/{run}/state"))["state"] for run in runs}
    left = server.gauges("service_inference_")
    left = {name: value for name, value in left.items() if any(word in name for word in ("in_flight", "waiting"))}
    print(f"{len(runs)} reasonings, {asked} questions, states {states}, left {left}")
    print(f"resident: {before:.0f} -> {server.resident_mb():.0f} MB")
    return states != {"completed"} or any(left.values())


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
