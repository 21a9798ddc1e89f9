#!/usr/bin/env python3
"""Runs a command beside a network that loses and delays packets.

usage: unshare --net benches/lossy.py LOSS_PERCENT DELAY_MS COMMAND...

What is sent to 10.9.0.2 comes back to 10.9.0.1 as if 10.9.0.2 had sent it, each packet on its own:
a client that dials 10.9.0.2 reaches the server that listens on 10.9.0.1 over the bad path, both
ways. Losses are drawn from a fixed seed; each way takes half of the delay.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
QUEUE_MAX = 2000


def open_tun():
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"bad0", IFF_TUN | IFF_NO_PI))
    for command in ("link set lo up", "addr add 10.9.0.1/24 dev bad0", "link set bad0 mtu 1500 up"):
        subprocess.run(["ip", *command.split()], check=True)
    return tun


def relay(tun, loss, delay, counts):
    draw, waiting, number = random.Random(7), [], 0
    while True:
        pause = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([tun], [], [], pause)
        now = time.monotonic()
        while ready:
            try:
                packet = bytearray(os.read(tun, 65536))
            except BlockingIOError:
                break
            counts["sent"] += 1
            if packet[0] >> 4 != 4 or len(waiting) >= QUEUE_MAX or draw.random() < loss:
                counts["lost"] += 1
                continue
            # Source and destination change places, which leaves every checksum as it is.
            packet[12:16], packet[16:20] = packet[16:20], packet[12:16]
            number += 1
            heapq.heappush(waiting, (now + delay, number, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(tun, heapq.heappop(waiting)[2])


def main():
    loss, delay, command = float(sys.argv[1]) / 100, float(sys.argv[2]) / 2000, sys.argv[3:]
    counts = {"sent": 0, "lost": 0}
    arguments = (open_tun(), loss, delay, counts)
    threading.Thread(target=relay, args=arguments, daemon=True, name="relay").start()
    status = subprocess.run(command, check=False).returncode
    print(f"{counts['lost']} of {counts['sent']} packets were lost", file=sys.stderr)
    sys.exit(status)


main()
