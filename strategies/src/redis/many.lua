-- MANY: the shortest way of UNLOCK and of LOCK, for several requests at once, of any buckets: what
-- each asks for is asked for all together. What that way is not for is left as it was, and its sender
-- asks by itself.
--
-- KEYS  in this order, the UNLOCKs of each kind before the LOCKs: the lock of each UNLOCK, the tokens
--       of each LOCK; the queue of each UNLOCK, nonces, queue and grant of each LOCK; the lock of
--       each LOCK
-- ARGV[1]  how many UNLOCKs
-- ARGV[2]  how many LOCKs
-- ARGV[3]  a time of this server (µs), as LOCK has it
-- then the nonce of each UNLOCK; then three for each LOCK: nonce, duration (ms), owner. No copies of
-- these are under way.
--
-- Answers for each UNLOCK 1: it held, and nobody waits; for each LOCK what LOCK answers to a grant:
-- now, which is the token, or {now, {}, token}; for any of them 0: nothing was done. An error says
-- that nothing was done for any.

local call = redis.call
local unlocks, locks = tonumber(ARGV[1]), tonumber(ARGV[2])
local read, absent = unlocks + locks, 2 * unlocks + 4 * locks
local values = call('MGET', unpack(KEYS, 1, read))
-- Nobody waits for any of them, and nothing is remembered.
local clear = call('EXISTS', unpack(KEYS, read + 1, absent)) == 0

local tokens, stamp, now = {}
if locks > 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  stamp = time[1] .. string.sub('00000' .. time[2], -6)
  local late = now > tonumber(ARGV[3])
  -- By counter: its last token.
  local last, raised = {}, {}
  for at = 1, locks do
    local counter, part = KEYS[unlocks + at], read + unlocks + 3 * at
    if not late and (clear or call('EXISTS', KEYS[part - 2], KEYS[part - 1], KEYS[part]) == 0) then
      local before, token = last[counter] or tonumber(values[unlocks + at]) or 0, stamp
      if before < now then
        last[counter] = now
      else
        last[counter] = before + 1
        token = string.format('%.0f', before + 1)
      end
      tokens[at] = token
      raised[#raised + 1] = counter
      raised[#raised + 1] = token
    end
  end
  if raised[1] then
    -- First of all that is written, because a server that is full, or that may not, refuses here and
    -- undoes nothing. Each counter's last token comes last: one that nobody gets is only skipped.
    call('MSET', unpack(raised))
  end
end

local answers, freed, ended = {}, {}, {}
for at = 1, unlocks do
  local value, lock = values[at], KEYS[at]
  answers[at] = 0
  if value and not ended[lock] and string.sub(value, 1, 34) == ARGV[3 + at] .. ' -'
    and (clear or call('EXISTS', KEYS[read + at]) == 0) then
    answers[at] = 1
    freed[#freed + 1] = lock
    ended[lock] = true
  end
end
if freed[1] then
  call('DEL', unpack(freed))
end

for at = 1, locks do
  local token, arg = tokens[at], unlocks + 3 * at
  answers[unlocks + at] = 0
  if token then
    local value = ARGV[arg + 1] .. ' - ' .. token .. ' ' .. stamp .. ' ' .. stamp .. ' '
      .. ARGV[arg + 3]
    if call('SET', KEYS[absent + at], value, 'NX', 'PX', ARGV[arg + 2]) then
      answers[unlocks + at] = token == stamp and now or {now, {}, tonumber(token)}
    end
  end
end
return answers
