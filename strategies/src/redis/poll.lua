-- POLL: the backstop. One sign of life of the calling process for each queue, and what became of
-- its nonces.
--
-- ARGV[3] and on, for each key: how many nonces, and the nonces
--
-- Answers {now, own grants, for each key {remaining (ms) of the holder's lease, and for each nonce
-- that does not simply wait its number and what it is}}:
--   number, 'granted', token, enqueued, granted at
--   number, 'spent'     it was granted and has run out, or was withdrawn
--   number, 'unknown'   never seen, or dropped: queue again

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = time[1] .. string.sub('00000' .. time[2], -6)

-- include settle.lua

local answers = {now, own}
local at, arg = 3, 3

while at <= #KEYS do
  if call('EXISTS', KEYS[at + 1]) == 1 then
    refresh(at, call('HGET', KEYS[at + 2], '@' .. ARGV[1]))
  end
  local value = settle(at)
  local answer = {value and remaining(at) or 0}
  for number = 1, tonumber(ARGV[arg]) do
    local nonce = ARGV[arg + number]
    if value and holder(value) == nonce then
      local token, enqueued, granted = grant_of(value)
      answer[#answer + 1] = {number, 'granted', token, enqueued, granted}
    elseif not call('ZSCORE', KEYS[at + 1], nonce) then
      answer[#answer + 1] = {number, is_remembered(nonce) and 'spent' or 'unknown'}
    end
  end
  answers[#answers + 1] = answer
  arg = arg + 1 + tonumber(ARGV[arg])
  at = at + 4
end

return answers
