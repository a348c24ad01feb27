-- Budgets of users and the global spend. The text before the first name is put in front of every script.
--
--   hermes:budgets:generation                  {run of the server}:{random}. Counters of another generation are not used.
--   hermes:budgets:{user}:2026-11              a user's month: generation, used, held; used:15, held:15, micro_usd:15 for a day of it;
--                                              alerted:month:80, alerted:15:80, … once the operator was alerted
--   hermes:budgets:{user}:2026-11:leases       reservations by the time when they end in ms: {hold}:{day}:{tokens}
--   hermes:budgets:{user}:2026-11-15:settled   the holds of that day that are settled
--   agnt:global_spend:2026-11-15               the global spend in micro-dollars
--   hermes:budgets:global:2026-11-15           generation and alerted:… of that counter; …:counted the calls that a rebuild found in SQL
--   hermes:budgets:agents:2026-11-15           the spend of agents in micro-dollars: generation, fleet, agent:{name}, alerted:…;
--                                              …:counted as above
--   …:rebuild                                  held by the process that rebuilds
--
-- A missing counter never means zero, it means: rebuild. Amounts are passed on as the strings they came as, because Lua rounds a number that
-- it gives to a command to 14 digits; comparisons are of whole numbers below 2^53, and exact.

local GENERATION = KEYS[1]

-- A server that was restarted from its disk, or replaced by its replica, has counters that look right and may be old. Its run id is a new
-- one; if an ACL hides the run id, only a loss of all keys is noticed.
local function run_of_server()
    local info = redis.pcall('INFO', 'server')
    return type(info) == 'string' and info:match('run_id:(%x+)') or ''
end

local function generation()
    local known = redis.call('GET', GENERATION)
    local run = run_of_server() .. ':'
    return known and known:sub(1, #run) == run and known
end

local function is_current(hash)
    local known = generation()
    return known and redis.call('HGET', hash, 'generation') == known
end

local function start_generation(random)
    local known = generation()
    if not known then
        known = run_of_server() .. ':' .. random
        redis.call('SET', GENERATION, known)
    end
    return known
end

local function number(value)
    return tonumber(value or 0)
end

local function give_back(month, leases, lease)
    if redis.call('ZREM', leases, lease) == 1 then
        local day, tokens = lease:match('^%x+:(%d+):(%d+)$')
        redis.call('HINCRBY', month, 'held', '-' .. tokens)
        redis.call('HINCRBY', month, 'held:' .. day, '-' .. tokens)
    end
end

local function expire(month, leases, now)
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do
        give_back(month, leases, lease)
    end
end

-- Finds the thresholds that are passed for the first time, and adds {label, percent} for each.
local function pass(hash, label, used, limit, passed)
    for _, percent in ipairs({80, 100}) do
        if limit > 0 and used * 100 >= limit * percent and redis.call('HSETNX', hash, 'alerted:' .. label .. ':' .. percent, 1) == 1 then
            passed[#passed + 1] = label
            passed[#passed + 1] = percent
        end
    end
end

-- name: reserve
-- KEYS generation month leases settled · ARGV now_ms day lease tokens day_limit month_limit expires_ms ttl_s
local month, leases, settled = KEYS[2], KEYS[3], KEYS[4]
local now, day, lease, tokens, day_limit, month_limit, expires, ttl = unpack(ARGV)
if not is_current(month) then
    return {'rebuild'}
end
expire(month, leases, now)
if redis.call('ZSCORE', leases, lease) then
    return {'reserved'} -- by an earlier try, whose reply came too late
end
if redis.call('SISMEMBER', settled, lease:match('^%x+')) == 1 then
    return {'given up'} -- this try comes too late: its caller no longer waits
end
local used = redis.call('HMGET', month, 'used', 'held', 'used:' .. day, 'held:' .. day)
if number(used[1]) + number(used[2]) + tonumber(tokens) > tonumber(month_limit) then
    return {'month'}
end
if number(used[3]) + number(used[4]) + tonumber(tokens) > tonumber(day_limit) then
    return {'day'}
end
redis.call('HINCRBY', month, 'held', tokens)
redis.call('HINCRBY', month, 'held:' .. day, tokens)
redis.call('ZADD', leases, expires, lease)
redis.call('EXPIRE', leases, ttl)
return {'reserved'}

-- name: settle
-- KEYS generation month leases settled · ARGV day hold lease tokens micro_usd day_limit month_limit settled_ttl_s
local month, leases, settled = KEYS[2], KEYS[3], KEYS[4]
local day, hold, lease, tokens, micro_usd, day_limit, month_limit, ttl = unpack(ARGV)
if not is_current(month) then
    return {'rebuild'}
end
give_back(month, leases, lease)
if redis.call('SADD', settled, hold) == 0 then
    tokens, micro_usd = '0', '0' -- settled before, or found in SQL by a rebuild; after a rebuild the thresholds are not checked yet
end
redis.call('EXPIRE', settled, ttl)
local passed = {'settled'}
pass(month, day, redis.call('HINCRBY', month, 'used:' .. day, tokens), tonumber(day_limit), passed)
pass(month, 'month', redis.call('HINCRBY', month, 'used', tokens), tonumber(month_limit), passed)
redis.call('HINCRBY', month, 'micro_usd:' .. day, micro_usd)
return passed

-- name: release
-- KEYS generation month leases · ARGV lease
give_back(KEYS[2], KEYS[3], ARGV[1])

-- name: used
-- KEYS generation month leases · ARGV now_ms day
local month, leases, day = KEYS[2], KEYS[3], ARGV[2]
if not is_current(month) then
    return {'rebuild'}
end
expire(month, leases, ARGV[1])
local used = redis.call('HMGET', month, 'used:' .. day, 'held:' .. day, 'micro_usd:' .. day, 'used', 'held')
return {'used', used[1] or '0', used[2] or '0', used[3] or '0', used[4] or '0', used[5] or '0'}

-- name: lock
-- KEYS generation hash rebuild · ARGV token ms
if is_current(KEYS[2]) then
    return 'current'
end
return redis.call('SET', KEYS[3], ARGV[1], 'NX', 'PX', ARGV[2]) and 'yours' or 'busy'

-- name: unlock
-- KEYS generation rebuild · ARGV token
if redis.call('GET', KEYS[2]) == ARGV[1] then
    redis.call('DEL', KEYS[2])
end

-- name: rebuild_user
-- KEYS generation month leases rebuild settled… · ARGV token ttl_s settled_ttl_s
--      {"used", "days": [[day, tokens, micro_usd], …], "settled": [[hold, …], …] for the keys, "leases": [[lease, expires_ms], …]}
local month, leases, rebuild = KEYS[2], KEYS[3], KEYS[4]
local token, ttl, settled_ttl, counted = ARGV[1], ARGV[2], ARGV[3], cjson.decode(ARGV[4])
if redis.call('GET', rebuild) ~= token then
    return 0 -- it took too long: another process rebuilds or has rebuilt, or all keys were lost again
end
redis.call('DEL', rebuild, month)
redis.call('HSET', month, 'generation', start_generation(token), 'used', counted.used)
for _, day in ipairs(counted.days) do
    redis.call('HSET', month, 'used:' .. day[1], day[2], 'micro_usd:' .. day[1], day[3])
end
redis.call('EXPIRE', month, ttl)
for number, holds in ipairs(counted.settled) do
    local settled = KEYS[4 + number]
    redis.call('DEL', settled)
    for _, hold in ipairs(holds) do
        redis.call('SADD', settled, hold)
    end
    redis.call('EXPIRE', settled, settled_ttl)
end
for _, lease in ipairs(counted.leases) do
    redis.call('ZADD', leases, lease[2], lease[1])
end
for _, lease in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    local day, tokens = lease:match('^%x+:(%d+):(%d+)$')
    redis.call('HINCRBY', month, 'held', tokens)
    redis.call('HINCRBY', month, 'held:' .. day, tokens)
end
redis.call('EXPIRE', leases, ttl)
return 1

-- name: admit
-- KEYS generation counter state · ARGV cap ('0' for none)
local spent = redis.call('GET', KEYS[2])
if not spent or not is_current(KEYS[3]) then
    return {'rebuild'}
end
local passed = {spent}
pass(KEYS[3], 'cap', tonumber(spent), tonumber(ARGV[1]), passed)
return passed

-- name: add
-- KEYS generation counter state counted · ARGV micro_usd call
local counter, state, counted = KEYS[2], KEYS[3], KEYS[4]
local micro_usd, call = unpack(ARGV)
if redis.call('EXISTS', counter) == 0 or not is_current(state) then
    return {'rebuild'}
end
if call == '' or redis.call('SISMEMBER', counted, call) == 0 then
    redis.call('INCRBY', counter, micro_usd)
end
return {'added'}

-- name: rebuild_global
-- KEYS generation counter state counted rebuild · ARGV token ttl_s micro_usd ceiling {call, …} as JSON
local counter, state, counted, rebuild = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, ttl, micro_usd, ceiling, calls = ARGV[1], ARGV[2], ARGV[3], ARGV[4], cjson.decode(ARGV[5])
if redis.call('GET', rebuild) ~= token then
    return 0
end
redis.call('DEL', rebuild, counted)
-- The operator may have set the ceiling by hand. A rebuild does not release it.
if number(redis.call('GET', counter)) >= tonumber(ceiling) then
    micro_usd = ceiling
end
redis.call('SET', counter, micro_usd, 'EX', ttl)
redis.call('HSET', state, 'generation', start_generation(token))
redis.call('EXPIRE', state, ttl)
for _, call in ipairs(calls) do
    redis.call('SADD', counted, call)
end
redis.call('EXPIRE', counted, ttl)
return 1

-- name: kill
-- KEYS generation counter · ARGV ceiling ttl_s
if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('SET', KEYS[2], ARGV[1], 'KEEPTTL')
else
    redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
end

-- name: admit_agent
-- KEYS generation agents · ARGV agent agent_cap fleet_cap ('0' for none)
local agents, agent = KEYS[2], ARGV[1]
if not is_current(agents) then
    return {'rebuild'}
end
local spent = redis.call('HMGET', agents, 'agent:' .. agent, 'fleet')
local passed = {spent[1] or '0', spent[2] or '0'}
-- With the cap in the label: after the operator has raised a cap, its thresholds are new ones.
pass(agents, 'agent:' .. ARGV[2] .. ':' .. agent, number(spent[1]), tonumber(ARGV[2]), passed)
pass(agents, 'fleet:' .. ARGV[3], number(spent[2]), tonumber(ARGV[3]), passed)
return passed

-- name: add_agent
-- KEYS generation agents counted · ARGV agent micro_usd call
local agents, counted = KEYS[2], KEYS[3]
local agent, micro_usd, call = unpack(ARGV)
if not is_current(agents) then
    return {'rebuild'}
end
if redis.call('SISMEMBER', counted, call) == 0 then
    redis.call('HINCRBY', agents, 'agent:' .. agent, micro_usd)
    redis.call('HINCRBY', agents, 'fleet', micro_usd)
end
return {'added'}

-- name: spent_by_agents
-- KEYS generation agents
if not is_current(KEYS[2]) then
    return {'rebuild'}
end
return redis.call('HGETALL', KEYS[2])

-- name: rebuild_agents
-- KEYS generation agents counted rebuild · ARGV token ttl_s fleet [[agent, micro_usd], …] and [call, …] as JSON; amounts as strings
local agents, counted, rebuild = KEYS[2], KEYS[3], KEYS[4]
local token, ttl, fleet = ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', rebuild) ~= token then
    return 0
end
redis.call('DEL', rebuild, agents, counted)
redis.call('HSET', agents, 'generation', start_generation(token), 'fleet', fleet)
for _, spent in ipairs(cjson.decode(ARGV[4])) do
    redis.call('HSET', agents, 'agent:' .. spent[1], spent[2])
end
redis.call('EXPIRE', agents, ttl)
for _, call in ipairs(cjson.decode(ARGV[5])) do
    redis.call('SADD', counted, call)
end
redis.call('EXPIRE', counted, ttl)
return 1

-- name: delete_keys
-- KEYS generation key…
redis.call('DEL', unpack(KEYS, 2))
