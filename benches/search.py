#!/usr/bin/env python3
"""Cost of a search over HTTP on a server with a million descriptions.

usage: benches/search.py path/to/described_log path/to/sightline-server [ROUNDS]
Prints the start of the server, its memory, and the median and worst of each query, alone and four at once.
"""
import concurrent.futures, http.client, json, os, subprocess, sys, tempfile, time

maker, program = sys.argv[1:3]
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
QUERIES = ["e", " w", "zebra", "STRASSE", "red coat", "the", "person in a 9", "999999"]
AT_ONCE = 4


class Server:
    def __init__(self, data):
        env = dict(os.environ, SERVICE_BIND_ADDR="127.0.0.1:0", SERVICE_DATA_DIR=data, SERVICE_API_KEYS="bench:key-of-the-bench",
                   SERVICE_RATE_LIMIT_GLOBAL_RPS="0", SERVICE_RATE_LIMIT_TENANT_RPS="0")
        started = time.time()
        self.process = subprocess.Popen([program], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addr = next(line.split("listening addr=")[1].split()[0] for line in self.process.stdout if "listening addr=" in line)
        print(f"listens after {time.time() - started:.2f} s")

    def search(self, query, **more):
        connection = http.client.HTTPConnection(self.addr)
        started = time.time()
        headers = {"x-api-key": "key-of-the-bench", "content-type": "application/json"}
        connection.request("POST", "/v1/search", json.dumps({"query": query, **more}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        took = time.time() - started
        assert answer.status == 200, (answer.status, body)
        connection.close()
        return took, body

    def memory_mb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def told(name, times, body):
    times = sorted(times)
    print(f"{name:>28}: median {times[len(times) // 2] * 1000:6.1f} ms, worst {times[-1] * 1000:6.1f} ms, {body['total_hits']} of {body['scanned']}")


with tempfile.TemporaryDirectory() as data:
    subprocess.run([maker, os.path.join(data, "log")], check=True)
    server = Server(data)
    try:
        deadline = time.time() + 120
        while server.search("zebra")[1]["scanned"] < 1_000_000 and time.time() < deadline:
            time.sleep(0.2)
        print(f"{server.memory_mb():.0f} MB resident")
        for query in QUERIES:
            looks = [server.search(query) for _ in range(rounds)]
            told(repr(query), [took for took, _ in looks], looks[-1][1])
        looks = [server.search("the", run_id=f"run-{5:032x}") for _ in range(rounds)]
        told("'the' in one run", [took for took, _ in looks], looks[-1][1])
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            looks = list(pool.map(lambda _: server.search("red coat"), range(rounds * AT_ONCE)))
        told(f"'red coat', {AT_ONCE} at once", [took for took, _ in looks], looks[-1][1])
        print(f"{server.memory_mb():.0f} MB resident")
    finally:
        server.process.terminate()
        server.process.wait()
