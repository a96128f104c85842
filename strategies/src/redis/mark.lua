-- MARK: writes, so that a WAIT behind it covers all that the server has done before.
--
-- KEYS[1]  a key of no other use

-- A server whose memory is full refuses the first write of a script if it needs memory.
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], '', 'PX', 1000)
