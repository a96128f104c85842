-- The sections that the scripts share. A script includes the text of a section where it names it.
-- They are plain statements on the local variables that their first lines name: each function that a
-- run creates costs a twentieth of a LOCK.
--
-- A script takes a list of requests of one verb, and runs them in their order:
--
-- KEYS     six for each request:
--   tokens   token counter of the bucket of the key, the only one without an expiry
--   nonces   nonces remembered in the bucket: sorted set, nonce -> forgotten at (ms)
--   lock     "nonce q token enqueued granted owner"; its expiry is the lease
--   queue    sorted set, nonce -> position
--   asked    hash of the waiters:
--            nonce -> "wait duration memory enqueued q process owner"
--            "@process" -> alive until (ms)
--            "#" -> last position, "#c" -> cursor of the search for silent processes,
--            "#r" -> "last_heartbeat silence_start grace_until", see the section heartbeats
--   copied_nonce
--            the holder's nonce, if copies of its LOCK may be in flight; outlives the lease by
--            nonce_memory, and is then moved to the nonces
-- ARGV[1]  "process memory waiter_ttl waiters nonces topics": the calling process, 32 digits;
--          nonce_memory (ms), waiter_ttl (ms), limits of the waiters of a key and the nonces in the
--          bucket, and the prefix of the topics
-- ARGV[2] and on: for each request the arguments of its verb
--
-- The reply is one text; an array costs half a microsecond more. It has a line for each request, its
-- result or a dash and its error; a line with the time, or 0 if no request has read the clock; and a
-- line "nonce token enqueued granted lease" for each grant to a waiter of the calling process.
--
-- Times are microseconds of this server's clock: `now` is the number, `stamp` its sixteen digits,
-- because formatting numbers is slow; `now_ms` is in milliseconds. The letter q is constant: the
-- scripts of 0.2.0 expect a letter there.
--
-- A server whose memory is full refuses the first write of a script if it needs memory, and no
-- later one. So requests that free, extend or grant begin with a write that needs none.

--- begin: the first lines of a script and of the function that runs one of its requests
-- `shared` is what the requests of a script share.
local function request(shared, key, argument)
  local call = redis.call
  local tokens, nonces, lock, queue, asked, copied_nonce = unpack(KEYS, key, key + 5)

--- run: the last lines: runs all requests, publishes their grants to other processes, and replies
end

-- All fields are set at once: a table that grows costs more.
local shared = {now = false, now_ms = false, stamp = '0', own = '', others = false}
local arguments = (#ARGV - 1) * 6 / #KEYS
local reply
for number = 0, #KEYS / 6 - 1 do
  local done, result = pcall(request, shared, 6 * number + 1, arguments * number + 2)
  result = done and result or '-' .. result
  reply = reply and reply .. '\n' .. result or result
end
local others = shared.others
if others then
  -- include settings
  for _, process in ipairs(others) do
    -- If this user may not publish, the waiters find their grants by a POLL.
    redis.pcall('PUBLISH', topics .. process, '1 ' .. others[process])
  end
end
return reply .. '\n' .. shared.stamp .. shared.own

--- clock: sets now, stamp, now_ms, which are the same for all requests of a script
if not shared.now then
  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  shared.now, shared.now_ms = now, (now - now % 1000) / 1000
  shared.stamp = time[1] .. string.sub('00000' .. time[2], -6)
end
local now, stamp, now_ms = shared.now, shared.stamp, shared.now_ms

--- grant_of: takes value; sets token, enqueued, granted_at, owner; nil if it is not a lock
local token, enqueued, granted_at, owner =
  string.match(value, '^%x+ %S (%d+) (%d+) (%d+) (.*)$')

--- grant: takes nonce, enqueued, duration, owner; sets token, and value, which the script declares
local token, last = stamp, tonumber(call('SET', tokens, stamp, 'GET')) or 0
if last >= now then
  token = string.format('%.0f', last + 1)
  call('SET', tokens, token)
end
value = nonce .. ' q ' .. token .. ' ' .. enqueued .. ' ' .. stamp .. ' ' .. owner
call('SET', lock, value, 'PX', duration)

--- remaining: sets left, how long the lease still lasts (ms)
local left = call('PTTL', lock)
if left < 0 then
  -- No script of ours sets a lease without an end: report 1 ms more than the longest (24 h).
  left = left == -1 and 86400001 or 0
end

--- settings: sets memory, waiter_ttl, waiters_max, nonces_max, topics
local memory, waiter_ttl, waiters_max, nonces_max, topics =
  string.match(ARGV[1], '^(%d+) (%d+) (%d+) (%d+) (.*)$', 34)

--- process: sets process, the calling one
local process = string.sub(ARGV[1], 1, 32)

--- remember: takes nonce, till (ms)
-- Forgets some that are over: all at once could block the server. It is a write that needs no
-- memory, also without any. At the limit the one to be forgotten first gives way.
local over = call('ZRANGE', nonces, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 32)
call('ZREM', nonces, '', unpack(over))
call('ZADD', nonces, till, nonce)
-- include settings
if call('ZCARD', nonces) > tonumber(nonces_max) then
  call('ZPOPMIN', nonces)
end
call('PEXPIREAT', nonces, call('ZRANGE', nonces, -1, -1, 'WITHSCORES')[2])

--- heartbeats: takes record, a "#r", waiter_ttl; sets last_heartbeat, silence_start, grace_until
-- All times (ms) concern the processes that wait for a key: the latest heartbeat of any, the begin
-- of a silence of all, and the time until which those alive at that begin may stay silent. The
-- server itself may have stood still. A silence of all before `grace_until` moves the begin by half
-- of waiter_ttl. Otherwise a process with too rare heartbeats would keep dead waiters.
local last_heartbeat, silence_start, grace_until =
  string.match(record or '', '^(%d+) (%d+) (%d+)$')
last_heartbeat = tonumber(last_heartbeat) or now_ms
silence_start, grace_until = tonumber(silence_start) or 0, tonumber(grace_until) or 0
if now_ms - last_heartbeat > waiter_ttl / 2 then
  silence_start = grace_until > last_heartbeat and silence_start + math.floor(waiter_ttl / 2)
    or last_heartbeat
  grace_until = now_ms + math.floor(waiter_ttl / 2)
end

--- heartbeat: of the calling process; takes process, waiter_ttl, record, and alive, until when it
-- counts as alive
-- Refreshed at most every waiter_ttl/16, so a heartbeat is valid for 17/16 waiter_ttl. A queue
-- without heartbeats expires.
if not alive or tonumber(alive) < now_ms + waiter_ttl then
  -- Never sooner: a process with a longer waiter_ttl may wait here as well.
  for _, name in ipairs({queue, asked}) do
    if call('PEXPIRE', name, 4 * waiter_ttl, 'GT') == 0 then
      call('PEXPIRE', name, 4 * waiter_ttl, 'NX')
    end
  end
  -- include heartbeats
  call('HSET', asked, '@' .. process, now_ms + math.floor(waiter_ttl * 17 / 16),
    '#r', string.format('%.0f %.0f %.0f', now_ms, silence_start, grace_until))
end

--- hand_off: sets value, and rest, silent
-- Grants the key, which has no holder or loses it in this request, to the first live waiter. Dead
-- waiters before it are dropped, at most 1,000 in a script or 100 for each request, so that it never
-- blocks the server for long. `value` is then the lock's new one, else false. If waiters are left,
-- `rest` is when to try again (ms): zero after dead waiters, more if the head is silent and may be
-- alive. `silent` says whether all waiters were silent for waiter_ttl.
value = false
local drops = math.max(6000 / #KEYS, 100)
while not value do
  local head = call('ZRANGE', queue, 0, 1)
  local nonce, behind = head[1], head[2]
  if not nonce then
    break
  end
  local wait, duration, memory, enqueued, requester, owner = string.match(
    call('HGET', asked, nonce) or '', '^(%S+) (%d+) (%d+) (%d+) %S (%S+) (.*)$')
  local waits = requester and (wait == '-1' or enqueued + wait * 1000 > now)
  if waits then
    local alive = tonumber(call('HGET', asked, '@' .. requester)) or 0
    if alive < now_ms then
      -- include settings
      local record = call('HGET', asked, '#r')
      -- include heartbeats
      if alive >= silence_start and grace_until > now_ms then
        local quiet = last_heartbeat + math.floor(waiter_ttl * 17 / 16) - now_ms
        if now_ms - last_heartbeat > waiter_ttl / 2 then
          -- All processes may be dead: the queue expires unless one sends a heartbeat by then, and
          -- not before the last of them is silent.
          for _, name in ipairs({queue, asked}) do
            call('PEXPIRE', name, math.max(math.floor(waiter_ttl / 2), quiet), 'LT')
          end
        end
        rest, silent = math.ceil(waiter_ttl / 16), quiet < 0
        break
      end
      waits = false
    end
  end
  if not waits then
    if drops < 1 then
      rest = 0
      break
    end
    drops = drops - 1
  end
  call('ZREM', queue, nonce)
  if behind then
    call('HDEL', asked, nonce)
  else
    call('DEL', asked)
  end
  if waits then
    -- include grant
    call('SET', copied_nonce, nonce, 'PX', duration + memory)
    local line = nonce .. ' ' .. token .. ' ' .. enqueued .. ' ' .. stamp .. ' ' .. duration
    -- include process
    if requester == process then
      shared.own = shared.own .. '\n' .. line
    else
      local others = shared.others or {}
      shared.others = others
      if others[requester] then
        line = others[requester] .. '\n' .. line
      else
        others[#others + 1] = requester
      end
      others[requester] = line
    end
  end
end

--- settle: takes value; sets value, rest, silent
-- If the lease has expired, remembers the holder if copies of its LOCK may be in flight, and grants
-- the key to the next waiter.
local rest, silent
if not value and call('EXISTS', queue, copied_nonce) > 0 then
  local nonce = call('GET', copied_nonce)
  if nonce then
    local till = now_ms + 1 + call('PTTL', copied_nonce)
    -- include remember
    call('DEL', copied_nonce)
  end
  -- include hand_off
end
