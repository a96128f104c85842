// A lock with renewal, over `gaggle serve`, with Node's standard library alone.
//
//     claims.mjs URL RESOURCE FILE TIMES    increments the number in FILE under the lock
//     claims.mjs URL RESOURCE               holds the lock until it is lost
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const now = () => performance.now() / 1000;
// The lock may be lost: check `isValid` before each effect, and pass `fencingToken` to the
// resource, which refuses smaller ones. Tokens are BigInts: numbers would round them.
class Claim {
  constructor(server, resource, ttl = 5) {
    Object.assign(this, { server, resource, ttl, deadline: 0 });
  }

  async request(method, url, body, headers = {}) {
    headers = { 'Content-Type': 'application/json', ...headers };
    if (process.env.GAGGLE_TOKEN) headers.Authorization = `Bearer ${process.env.GAGGLE_TOKEN}`;
    try {
      const signal = AbortSignal.timeout(45_000);
      const response = await fetch(url, { method, headers, body: JSON.stringify(body), signal });
      const text = await response.text();
      return [response.status, text ? JSON.parse(text) : null];
    } catch { return [503, null]; } // no connection, or no response
  }

  async acquire() {
    const [key, wait] = [randomUUID(), { Prefer: 'wait=30' }];
    for (let url = null; ; ) {
      const sent = now();
      const [status, claim] = url
        ? await this.request('PATCH', url, { status: 'active' }, wait)
        : await this.request('POST', `${this.server}/v1/claims/`,
            { resource: this.resource, ttl: this.ttl }, { 'Idempotency-Key': key, ...wait });
      if (status === 200 || status === 201) {
        this.url = claim.url;
        this.fencingToken = BigInt(claim.fencing_token);
        this.deadline = sent + claim.waited + claim.ttl;
        this.timer = setInterval(() => this.renew(), (this.ttl / 3) * 1000);
        return this;
      } else if (status === 202 || status === 404) {
        url = status === 202 ? claim.url : null; // it waits; or the server does not know it
      } else if ([429, 503, 504].includes(status)) {
        await sleep(1000);
      } else if (claim.code !== 'locked') {
        throw new Error(claim.message);
      }
    }
  }

  async renew() {
    const sent = now();
    const [status, claim] = await this.request('PATCH', this.url, { ttl: this.ttl });
    if (status === 200) this.deadline = sent + claim.waited + claim.ttl;
    // After other errors the deadline decides.
    else if (status === 400 || status === 404) this.deadline = 0;
  }

  isValid = () => now() < this.deadline;

  async release() {
    clearInterval(this.timer);
    await this.request('PATCH', this.url, { status: 'released' });
  }
}

const [server, resource, file, times] = process.argv.slice(2);
for (let turn = 0; turn < (times ?? 1); turn += 1) {
  const claim = await new Claim(server, resource).acquire();
  if (!file) {
    console.log('held', claim.fencingToken.toString());
    while (claim.isValid()) await sleep(100);
  } else if (claim.isValid()) {
    writeFileSync(file, String(Number(readFileSync(file, 'utf8')) + 1));
  }
  await claim.release();
}
console.log(file ? 'done' : 'lost');
