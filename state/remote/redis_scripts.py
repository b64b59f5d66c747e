"""Lua scripts for Redis, each of which runs atomically.

Lists of slots and values arrive in chunks: byte strings with length prefixes. So neither the number of a command's arguments nor the number of
Lua's `unpack`, about 8,000, limits a save. (Redis's cmsgpack does not support the binary strings of MessagePack.)

Redis does not undo the writes of a script that fails. So each script checks first and writes afterwards, starting with a write that a full
Redis refuses. After its first write, Redis lets a script finish.
"""

from __future__ import annotations

STAGED_CHUNKS_ARE_MISSING = "PENSTOCKSTAGED"
"""The start of the error when staged chunks are missing or incomplete."""

_ITEMS_OF = """
local function items_of(chunk, at)
    local items, number = {}, 0
    while at <= #chunk do
        number = number + 1
        items[number], at = struct.unpack('>I4c0', chunk, at)
    end
    return items
end
"""

_IN_STEPS = """
local STEP = 4000
local function in_steps(command, key, items)
    for first = 1, #items, STEP do
        redis.call(command, key, unpack(items, first, math.min(first + STEP - 1, #items)))
    end
end
"""

CLAIM = """
local found = redis.call('HMGET', KEYS[1], 'format', 'shape')
if found[2] and (found[1] ~= ARGV[1] or found[2] ~= ARGV[2]) then
    return {0, found[1], found[2]}
end
redis.call('HSET', KEYS[1], 'format', ARGV[1], 'shape', ARGV[2], 'owner', ARGV[3])
local epoch = redis.call('HINCRBY', KEYS[1], 'epoch', 1)
local saved = redis.call('HMGET', KEYS[1], 'saves', 'position')
return {epoch, tonumber(saved[1] or 0), saved[2] or '{}'}
"""
"""Keys: shard. Arguments: format, shape, owner. Returns epoch, saves and position; or 0 and the stored format and shape."""

COMMIT = (
    _ITEMS_OF
    + _IN_STEPS
    + """
local shard, wholes, sums, fractions, observed, extremes, partials, staged = unpack(KEYS)

local version = redis.call('HMGET', shard, 'owner', 'epoch', 'saves')
local owner, epoch, saves = version[1] or '', tonumber(version[2] or 0), tonumber(version[3] or 0)
if owner ~= ARGV[1] or epoch ~= tonumber(ARGV[2]) or saves ~= tonumber(ARGV[3]) then
    return {owner, epoch, saves}
end
local staged_chunks = tonumber(ARGV[7])
if staged_chunks > 0 and redis.call('LLEN', staged) ~= staged_chunks then
    return redis.error_reply('PENSTOCKSTAGED chunks are missing')
end

redis.call('HSET', shard, 'saves', saves + 1, 'position', ARGV[4])
if ARGV[5] ~= 'keep' then
    redis.call('HSET', shard, 'outbox', string.sub(ARGV[5], 2))
end
if ARGV[6] ~= '' then
    redis.call('HSET', shard, 'shape', ARGV[6])
end

local function drop(slots, keys)
    for _, key in ipairs(keys) do
        if redis.call('EXISTS', key) == 1 then
            in_steps('HDEL', key, slots)
        end
    end
end

local function append(slot, framed)
    local kept = redis.call('HGET', partials, slot)
    if kept then
        local size = struct.unpack('>I4', kept) + 1
        redis.call('HSET', partials, slot, struct.pack('>I4', size) .. string.sub(kept, 5) .. framed)
    else
        redis.call('HSET', partials, slot, struct.pack('>I4', 1) .. framed)
    end
end

-- Lua's own comparison of strings follows the locale. No rank is the beginning of another.
local function greater(left, right)
    for at = 1, math.min(#left, #right) do
        local ours, theirs = string.byte(left, at), string.byte(right, at)
        if ours ~= theirs then
            return ours > theirs
        end
    end
    return false
end

local change = {}

function change.removed(slots)
    drop(slots, {wholes, sums, fractions, observed, extremes, partials})
end

function change.wholes(items)
    local others = {sums, fractions, observed, extremes, partials}
    if redis.call('EXISTS', unpack(others)) > 0 then
        local slots = {}
        for at = 1, #items, 2 do
            slots[#slots + 1] = items[at]
        end
        drop(slots, others)
    end
    in_steps('HSET', wholes, items)
end

function change.totals(items)
    for at = 1, #items, 5 do
        local slot, sum, fraction, count, framed = unpack(items, at, at + 4)
        -- HINCRBY refuses sums beyond 64 bits. The partial is then appended.
        if type(redis.pcall('HINCRBY', sums, slot, sum)) == 'table' then
            append(slot, framed)
        else
            if fraction ~= '' then
                local kept = tonumber(redis.call('HGET', fractions, slot) or 0)
                redis.call('HSET', fractions, slot, string.format('%.17g', kept + tonumber(fraction)))
            end
            if count ~= '0' then
                redis.call('HINCRBY', observed, slot, count)
            end
        end
    end
end

function change.extremes(items)
    for at = 1, #items, 3 do
        local slot, rank, encoded = unpack(items, at, at + 2)
        local kept = redis.call('HGET', extremes, slot)
        if not kept or greater(rank, string.sub(kept, 5, 4 + struct.unpack('>I4', kept))) then
            redis.call('HSET', extremes, slot, struct.pack('>I4', #rank) .. rank .. encoded)
        end
    end
end

function change.partials(items)
    for at = 1, #items, 2 do
        append(items[at], items[at + 1])
    end
end

local function apply(chunk)
    local kind, at = struct.unpack('>I4c0', chunk)
    change[kind](items_of(chunk, at))
end

for at = 0, staged_chunks - 1 do
    apply(redis.call('LINDEX', staged, at))
end
redis.call('DEL', staged)
for at = 8, #ARGV do
    apply(ARGV[at])
end
return {owner, epoch, saves}
"""
)
"""Keys: shard, the hashes, staged. Arguments: owner, epoch, saves, position, outbox ('keep', or '=' and its bytes), shape (empty to
keep it), the number of staged chunks, chunks. Returns owner, epoch and saves before; it has written if they equal the arguments.

HINCRBYFLOAT writes seventeen digits after the point, which turns 1e-20 into zero. So floats are added here, as doubles.
"""

PARTS = (
    _ITEMS_OF
    + """
local STEP = 4000
local asked = items_of(ARGV[1], 1)
local answer = {}
for number, key in ipairs(KEYS) do
    local found = {}
    if redis.call('EXISTS', key) == 1 then
        for first = 1, #asked, STEP do
            local values = redis.call('HMGET', key, unpack(asked, first, math.min(first + STEP - 1, #asked)))
            for at = 1, #values do
                found[first + at - 1] = values[at]
            end
        end
    end
    answer[number] = found
end
return answer
"""
)
"""Keys: the hashes. Arguments: a chunk of slots. Returns the values of each hash at the slots; nothing for a missing hash."""

SLOTS = """
local scanned = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 5000)
local names = {}
for at = 1, #scanned[2], 2 do
    local slot = scanned[2][at]
    if ARGV[2] == 'any' or string.sub(slot, 9) == ARGV[3] then
        names[#names + 1] = slot
    end
end
return {scanned[1], names}
"""
"""Keys: a hash. Arguments: cursor, 'any' or 'key', the key. Returns the next cursor and slots, which may repeat."""

UNMERGED = """
local scanned = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 50)
local unmerged = {}
for at = 1, #scanned[2], 2 do
    local kept = scanned[2][at + 1]
    if struct.unpack('>I4', kept) > tonumber(ARGV[2]) then
        unmerged[#unmerged + 1] = scanned[2][at]
        unmerged[#unmerged + 1] = kept
    end
end
return {scanned[1], unmerged}
"""
"""Keys: partials. Arguments: cursor, the greatest number of partials to skip. Returns the next cursor, and slots with their partials."""

REPLACE = (
    _ITEMS_OF
    + """
local replaced = 0
local items = items_of(ARGV[1], 1)
for at = 1, #items, 5 do
    local slot, size, length, digest, framed = unpack(items, at, at + 4)
    length = tonumber(length)
    local kept = redis.call('HGET', KEYS[1], slot)
    if kept and #kept >= 4 + length and redis.sha1hex(string.sub(kept, 5, 4 + length)) == digest then
        local left = struct.unpack('>I4', kept) - size + 1
        redis.call('HSET', KEYS[1], slot, struct.pack('>I4', left) .. framed .. string.sub(kept, 5 + length))
        replaced = replaced + 1
    end
end
return replaced
"""
)
"""Keys: partials. Arguments: a chunk with, for each slot: the slot, the number of partials, their length in bytes, their digest, and the new partial.

The first partials of a slot may be replaced by their combination regardless of their writer, so comparing their bytes is enough.
"""
