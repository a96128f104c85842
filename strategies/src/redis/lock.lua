-- LOCK: grants, queues or refuses each of several requests.
--
-- ARGV[3]  a time of this server (µs): later, the sender's knowledge of it is too old for what is
--          remembered
-- then five for each request: nonce, duration (ms), wait (ms; 0 not at all, -1 for ever),
-- "c" if copies of this LOCK may be under way (else "-"), owner
--
-- Answers {now, own grants, an answer for each request}:
--   {'granted', token}            the key was free
--   {'again', token, remaining}   this nonce holds it already, for so many ms more
--   {'queued', remaining}         it waits; the holder's lease ends in so many ms
--   {'held', remaining}           another holds it, and the request does not wait
--   {'spent'}                     this nonce was unlocked, withdrawn, or its lease ran out
--   {'waiters', n} {'nonces', n}  a bound is reached
-- or {now, {}, {'stale'}}, if it is too late; or now alone: the only request was granted with that
-- token.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then
  return {now, {}, {'stale'}}
end

-- The shortest way: one request for a free key, nobody waiting, nothing remembered.
if #KEYS == 5 and ARGV[7] == '-' then
  local found = call('MGET', KEYS[1], KEYS[3])
  if not found[2] and call('EXISTS', KEYS[2], KEYS[4]) == 0 and (tonumber(found[1]) or 0) < now then
    local token = string.format('%.0f', now)
    call('SET', KEYS[1], token)
    call('SET', KEYS[3], ARGV[4] .. ' - ' .. token .. ' ' .. token .. ' ' .. token .. ' ' .. ARGV[8],
      'NX', 'PX', ARGV[5])
    return now
  end
end

-- include settle.lua

local answers = {now, own}

-- The nonce holds already. A copy was under way: its end must be remembered.
local function again(at, value, copies)
  local token = grant_of(value)
  if copies == 'c' and string.sub(value, 34, 34) ~= 'c' then
    call('SET', KEYS[at], string.sub(value, 1, 33) .. 'c' .. string.sub(value, 35), 'KEEPTTL')
    remember(holder(value), now + remaining(at) * 1000)
  end
  return {'again', token, remaining(at)}
end

-- Drops signs of life that are over from the next part of a queue's hash. A queue that is never
-- empty would else keep every process that ever waited. Each part is more than the 32 places taken
-- since can have added.
local function forget_silent(at)
  local cursor = call('HGET', KEYS[at + 2], '#c') or '0'
  local found = call('HSCAN', KEYS[at + 2], cursor, 'MATCH', '@*', 'COUNT', 256)
  for field = 1, #found[2], 2 do
    if tonumber(found[2][field + 1]) < now_ms then
      call('HDEL', KEYS[at + 2], found[2][field])
    end
  end
  call('HSET', KEYS[at + 2], '#c', found[1])
end

-- Takes a place, or keeps the one it has; a repeated LOCK may lengthen the wait, and counts its
-- wait from now, so that the newest sender's deadline is right. Of two leases asked for the longer
-- is granted: each sender counts on its own.
local function enqueue(at, nonce, duration, wait, copies, owner)
  local deadline = wait < 0 and 9007199254740991 or now + wait * 1000
  local record = call('ZSCORE', KEYS[at + 1], nonce) and call('HGET', KEYS[at + 2], nonce)
  if record then
    local before, lease, _, flag = string.match(record, '^(%d+) (%d+) (%d+) (%S)')
    deadline = math.max(deadline, tonumber(before))
    duration = whole(math.max(tonumber(duration), tonumber(lease)))
    if flag == 'c' then
      copies = 'c'
    end
  else
    if call('ZCARD', KEYS[at + 1]) >= waiters_max then
      return {'waiters', waiters_max}
    end
    local place = call('HINCRBY', KEYS[at + 2], '#', 1)
    call('ZADD', KEYS[at + 1], place, nonce)
    if place % 32 == 0 then
      forget_silent(at)
    end
  end
  call('HSET', KEYS[at + 2], nonce, whole(deadline) .. ' ' .. duration .. ' ' .. whole(now) .. ' '
    .. (copies == 'c' and 'c' or 'q') .. ' ' .. ARGV[1] .. ' ' .. owner)
  refresh(at)
  return {'queued', remaining(at)}
end

-- Whether the memory of finished nonces refuses this one, and how.
local function refused(at, nonce)
  if call('EXISTS', KEYS[2]) == 0 then
    return nil
  end
  if is_remembered(nonce) then
    return {'spent'}
  end
  if call('ZCARD', KEYS[2]) >= nonces_max and not call('ZSCORE', KEYS[at + 1], nonce) then
    call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now_ms))
    if call('ZCARD', KEYS[2]) >= nonces_max then
      return {'nonces', nonces_max}
    end
  end
end

for request = 0, (#ARGV - 3) / 5 - 1 do
  local at = 3 + request * 3
  local nonce, duration, wait, copies, owner = unpack(ARGV, 4 + request * 5, 8 + request * 5)
  wait = tonumber(wait)
  local value, waiting = settle(at)
  local answer
  if value and holder(value) == nonce then
    answer = again(at, value, copies)
  else
    answer = refused(at, nonce)
    if answer then
      -- Judged.
    elseif not value and not waiting then
      answer = {'granted', (grant(at, nonce, copies, now, duration, owner))}
    elseif wait == 0 then
      answer = {'held', remaining(at)}
    else
      answer = enqueue(at, nonce, duration, wait, copies, owner)
    end
  end
  answers[#answers + 1] = answer
end

return answers
