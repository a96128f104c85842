#!/usr/bin/env python3
"""A lock with renewal, over `gaggle serve`, with the standard library alone.

    claims.py URL RESOURCE FILE TIMES    increments the number in FILE under the lock
    claims.py URL RESOURCE               holds the lock until it is lost
"""
import json, os, sys, threading, time, urllib.error, urllib.request, uuid

def now():  # counts the time for which the machine was suspended, as the lease does
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Claim:
    """A lock that may be lost: check `is_valid`, and pass `fencing_token` to the resource."""

    def __init__(self, server, resource, ttl=5.0):
        self.claims, self.resource, self.ttl = f"{server}/v1/claims/", resource, ttl
        self.deadline, self.released = 0.0, threading.Event()

    def request(self, method, url, body, headers={}):
        headers = {"Content-Type": "application/json", **headers}
        if token := os.environ.get("GAGGLE_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=45) as response:
                return response.status, json.loads(response.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")
        except OSError:  # no connection, or no response
            return 503, None

    def __enter__(self):
        url, wait = None, {"Prefer": "wait=30"}
        named = {"Idempotency-Key": str(uuid.uuid4())} | wait
        post = ("POST", self.claims, {"resource": self.resource, "ttl": self.ttl}, named)
        while True:
            sent, patch = now(), ("PATCH", url, {"status": "active"}, wait)
            status, claim = self.request(*(patch if url else post))
            if status in (200, 201):
                self.url, self.fencing_token = claim["url"], int(claim["fencing_token"])
                self.deadline = sent + claim["waited"] + claim["ttl"]
                threading.Thread(target=self.renew, daemon=True).start()
                return self
            elif status in (202, 404):  # it waits; or the server does not know it
                url = claim.get("url")
            elif status in (429, 503, 504):
                time.sleep(1)
            elif claim["code"] != "locked":
                raise RuntimeError(claim["message"])

    def renew(self):
        while not self.released.wait(self.ttl / 3):
            sent, (status, claim) = now(), self.request("PATCH", self.url, {"ttl": self.ttl})
            if status == 200:
                self.deadline = sent + claim["waited"] + claim["ttl"]
            elif status in (400, 404):  # lost; after other errors the deadline decides
                self.deadline = 0.0

    def is_valid(self):
        return now() < self.deadline

    def __exit__(self, *_):
        self.released.set()
        self.request("PATCH", self.url, {"status": "released"})


server, resource, *rest = sys.argv[1:]
for _ in range(int(rest[1]) if rest else 1):
    with Claim(server, resource) as claim:
        if not rest:
            print("held", claim.fencing_token, flush=True)
            while claim.is_valid():
                time.sleep(0.1)
        elif claim.is_valid():
            with open(rest[0], "r+") as file:
                value = int(file.read()) + 1
                file.seek(0)
                file.write(str(value))
print("done" if rest else "lost")
