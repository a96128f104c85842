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
-- or {now, {}, {'stale'}}, if it is too late. The two answers that must be fast are shorter: now
-- alone, where the only request was granted with that token, and "queued now remaining", where it waits.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then
  return {now, {}, {'stale'}}
end

local stamp = time[1] .. string.sub('00000' .. time[2], -6)
if #KEYS == 6 and ARGV[7] == '-' then
  local nonce = ARGV[4]
  -- What is remembered counts three times.
  local there = call('EXISTS', KEYS[4], KEYS[6], KEYS[2], KEYS[2], KEYS[2])
  if there == 0 then
    -- The shortest way: one request for a free key, nobody waiting, nothing remembered.
    local value = nonce .. ' - ' .. stamp .. ' ' .. stamp .. ' ' .. stamp .. ' ' .. ARGV[8]
    if not call('SET', KEYS[3], value, 'NX', 'GET', 'PX', ARGV[5]) then
      local last = tonumber(call('SET', KEYS[1], stamp, 'GET')) or 0
      if last < now then
        return now
      end
      -- The clock is behind the last token: taken back, and granted below with the next one.
      call('SET', KEYS[1], string.format('%.0f', last))
      call('DEL', KEYS[3])
    end
  elseif ARGV[6] ~= '0' and there < 3 then
    -- The next: a new place in a queue that this process has refreshed, with room for it.
    local value = call('GET', KEYS[3])
    if value and string.sub(value, 1, 32) ~= nonce then
      local found = call('HMGET', KEYS[5], nonce, '#', '#m', '@' .. ARGV[1])
      local place = (tonumber(found[2]) or 0) + 1
      local waiter_ttl = string.match(ARGV[2], '^%d+ %d+ (%d+)')
      if not found[1] and place < (tonumber(found[3]) or 0) and place % 32 ~= 0
        and (tonumber(found[4]) or 0) > now / 1000 + waiter_ttl then
        place = string.format('%d', place)
        call('ZADD', KEYS[4], place, nonce)
        call('HSET', KEYS[5], '#', place, nonce, ARGV[6] .. ' ' .. ARGV[5] .. ' ' .. stamp .. ' q '
          .. ARGV[1] .. ' ' .. ARGV[8])
        local ttl = call('PTTL', KEYS[3])
        return 'queued ' .. stamp .. ' ' .. (ttl == -1 and 3600000 or ttl)
      end
    end
  end
end

-- include settle.lua

local answers = {now, own}

-- The nonce holds already. A copy was under way: its end must be remembered.
local function again(at, value, copies)
  local token = grant_of(value)
  if copies == 'c' and string.sub(value, 34, 34) ~= 'c' then
    call('SET', KEYS[at], string.sub(value, 1, 33) .. 'c' .. string.sub(value, 35), 'KEEPTTL')
    call('DEL', KEYS[at + 3])
    remember(holder(value), now_ms + 1 + remaining(at) + memory_ms())
  end
  return {'again', token, remaining(at)}
end

-- Takes a place, or keeps the one it has; a repeated LOCK may lengthen the wait, and counts its
-- wait from now, so that the newest sender's deadline is right. Of two leases asked for the longer
-- is granted: each sender counts on its own.
local function enqueue(at, nonce, duration, wait, flag, owner)
  local queue, asked = KEYS[at + 1], KEYS[at + 2]
  local found = call('HMGET', asked, nonce, '#', '@' .. ARGV[1])
  local place = found[2]
  if found[1] and call('ZSCORE', queue, nonce) then
    local waits, lease, enqueued, before = string.match(found[1], '^(%S+) (%d+) (%d+) (%S)')
    if waits == '-1' then
      wait = waits
    elseif wait ~= '-1' then
      wait = whole(math.max(wait, math.ceil((enqueued + waits * 1000 - now) / 1000)))
    end
    duration = whole(math.max(duration, lease))
    if before == 'c' then
      flag = before
    end
  else
    local waiters_max = tonumber(string.match(ARGV[2], '^%d+ %d+ %d+ (%d+)'))
    local room = waiters_max - call('ZCARD', queue)
    if room <= 0 then
      return {'waiters', waiters_max}
    end
    place = (place or 0) + 1
    call('HSET', asked, '#m', string.format('%d', place + room))
    place = string.format('%d', place)
    call('ZADD', queue, place, nonce)
    if place % 32 == 0 then
      forget_silent(at)
    end
  end
  call('HSET', asked, '#', place, nonce,
    wait .. ' ' .. duration .. ' ' .. stamp .. ' ' .. flag .. ' ' .. ARGV[1] .. ' ' .. owner)
  refresh(at, found[3])
  return {'queued', remaining(at)}
end

-- Whether the memory of finished nonces refuses this one, and how.
local function refused(at, nonce)
  local remembered = call('ZCARD', KEYS[2])
  if remembered == 0 then
    return nil
  end
  if is_remembered(nonce) then
    return {'spent'}
  end
  local nonces_max = tonumber(string.match(ARGV[2], '^%d+ %d+ %d+ %d+ (%d+)'))
  if remembered >= nonces_max and not call('ZSCORE', KEYS[at + 1], nonce) then
    call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now_ms))
    if call('ZCARD', KEYS[2]) >= nonces_max then
      return {'nonces', nonces_max}
    end
  end
end

for request = 0, (#ARGV - 3) / 5 - 1 do
  local at = 3 + request * 4
  local nonce, duration, wait, copies, owner = unpack(ARGV, 4 + request * 5, 8 + request * 5)
  local value, waiting = settle(at)
  local answer
  if value and holder(value) == nonce then
    answer = again(at, value, copies)
  else
    answer = refused(at, nonce)
    if answer then
      -- Judged.
    elseif not value and not waiting then
      answer = {'granted', tonumber((grant(at, nonce, copies, stamp, duration, owner)))}
    elseif wait == '0' then
      answer = {'held', remaining(at)}
    else
      answer = enqueue(at, nonce, duration, wait, copies == 'c' and 'c' or 'q', owner)
    end
  end
  answers[#answers + 1] = answer
end

return answers
