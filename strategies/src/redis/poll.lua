-- POLL: the backstop. A sign of life of the calling process, and what became of its nonces.
--
-- checked   the nonces, with a space between two
--
-- Results: the remaining lease of the holder (ms), and for each nonce that does not simply wait,
-- after a comma, one of
--   NONCE TOKEN ENQUEUED GRANTED LEASE   it holds the key; as the lines of grants
--   NONCE spent                          its lease expired, or it was withdrawn
--   NONCE unknown                        never seen, or dropped: queue again

-- include begin
local checked = ARGV[argument]
-- include clock
-- include process
local found = call('HMGET', asked, '@' .. process, '#r')
local alive, record = found[1], found[2]
-- A key without waiters has no record.
if record then
  -- include settings
  -- include heartbeat
end
local value = call('GET', lock)
-- include settle
local holder = value and string.sub(value, 1, 32)
-- include remaining
local result = rest or left
for nonce in string.gmatch(checked, '%x+') do
  if nonce == holder then
    -- include grant_of
    local lease = math.ceil(now_ms + left - granted_at / 1000)
    local stamps = token .. ' ' .. enqueued .. ' ' .. granted_at
    result = result .. ',' .. nonce .. ' ' .. stamps .. ' ' .. lease
  elseif not call('ZSCORE', queue, nonce) then
    local till = tonumber(call('ZSCORE', nonces, nonce) or 0)
    result = result .. ',' .. nonce .. (till > now_ms and ' spent' or ' unknown')
  end
end
return tostring(result)
-- include run
