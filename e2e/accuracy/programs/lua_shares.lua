-- SPDX-License-Identifier: Apache-2.0
-- Shares: Lua 5.1 to 5.4: recursion, methods, upvalues, tail calls, metamethods, iterators,
-- coroutines, callbacks from C, errors. Its protocol is burn.h's; and its stacks, as its own
-- debug.traceback tells them, go to the file TOLD.stacks: NAME, a frame that only this share has,
-- and the chain (programs.py).

local told, seconds = arg[1], tonumber(arg[2])
local telling = {}          -- not nil: leaves tell their stacks into it
local resumed = {}          -- chains of who resumes the coroutines at hand
local version = _VERSION:match("%d%.%d")
local calls_from_c = false -- 5.1 does not tell metamethods and iterators, which native frames call
local resume, yield, create = coroutine.resume, coroutine.yield, coroutine.create

-- What podflame shows for a line of a traceback; "..." for native frames.
local function frame_of(line)
    local name = line:match("in function (<.*>)$")
    if name then return "function " .. name end
    if line:match("main chunk") then return "main chunk" end
    if line:match("^%s*%[C%]") then return "..." end
    if line:match("for iterator") then return "for iterator" end
    name = line:match("in metamethod '(.*)'") or line:match("in function '(__.*)'")
    if name then return "metamethod '" .. name .. "'" end
    return line:match("'(.*)'")
end

-- Frames of the running coroutine from the outermost on, without `skip` of the innermost.
local function frames(skip)
    local list, between = {}, " > "
    if calls_from_c then between = " > ... > " end
    for line in debug.traceback("", skip + 2):gmatch("[^\n]+") do
        local frame = line:match("^%s") and not line:match("tail call") and frame_of(line)
        -- traceback() leaves out the middle of long stacks
        if line:match("^%s*%.%.%.") then frame = "..." end
        if frame then
            -- The interpreter calls these from C.
            if frame:match("^metamethod") or frame == "for iterator" then
                table.insert(list, 1, frame)
                frame = "..."
            end
            table.insert(list, 1, frame)
        end
    end
    return table.concat(list, between)
end

local function chain(skip)
    return table.concat(resumed, " > ... > ") .. (resumed[1] and " > ... > " or "... > ")
        .. frames(skip + 1)
end

-- The leaf of each share is a function of its own that works by itself.
local source = [[
local telling, chain = ...
return function(n)
    if telling[1] then
        telling[#telling + 1] = chain(0)
        return 0
    end
    local x = 0
    for i = 1, n do
        x = (x * 31 + i) % 1000003
    end
    return x
end]]
local function leaf()
    return (loadstring or load)(source, "=leaf")(telling, chain)
end

-- ---- shares ----

leaf_global = leaf()
function middle(n) local r = leaf_global(n) return r end
function outer(n) local r = middle(n) return r end

leaf_deep = leaf()
function deep(n, depth)
    local r
    if depth == 0 then r = leaf_deep(n) else r = deep(n, depth - 1) end
    return r
end

local Account = {}
Account.__index = Account
leaf_method = leaf()
function Account:deposit(n) local r = leaf_method(n) return r end
function Account.static(n) local r = setmetatable({}, Account):deposit(n) return r end

leaf_tail = leaf()
local function in_tail(n) local r = leaf_tail(n) return r end
local function tail(n) return in_tail(n) end

leaf_meta = leaf()
local meta = setmetatable({}, {
    __index = function(_, n) local r = leaf_meta(n) return r end,
    __add = function(t, n) local r = t[n] return r end,
})

leaf_iterator = leaf()
local function iterate(n)
    local function once(_, i)
        if i == 0 then leaf_iterator(n) return 1 end
    end
    for _ in once, nil, 0 do end
end

leaf_sort = leaf()
local function sorted(n)
    table.sort({2, 1}, function(a, b) leaf_sort(n) return a < b end)
end

leaf_gsub = leaf()
local function substituted(n)
    return (string.gsub("a", "a", function() local r = leaf_gsub(n) return tostring(r) end))
end

leaf_caught = leaf()
local function caught(n)
    pcall(function() leaf_caught(n) error("caught") end)
end

leaf_handler = leaf()
local function handled(n)
    xpcall(function() error("handled") end, function() local r = leaf_handler(n) return r end)
end

leaf_coroutine = leaf()
local function in_coroutine(n)
    while true do
        local r = leaf_coroutine(n)
        n = yield(r)
    end
end
local kept
local function coroutines(n)
    kept = kept or create(in_coroutine)
    if telling[1] then resumed[#resumed + 1] = "... > " .. frames(0) end
    assert(resume(kept, n))
    resumed[#resumed] = nil
end

leaf_nested = leaf()
local function nested(n)
    if telling[1] then resumed[#resumed + 1] = "... > " .. frames(0) end
    local co = create(function()
        if telling[1] then resumed[#resumed + 1] = frames(0) end
        local inner = create(function() local r = leaf_nested(n) return r end)
        local ok, r = resume(inner)
        resumed[#resumed] = nil
        return r
    end)
    assert(resume(co))
    resumed[#resumed] = nil
end

-- What yielded goes on without the native frames of what called it.
leaf_resumed = leaf()
local function again(n) yield() local r = leaf_resumed(n) return r end
local function yields(n) local r = again(n) return r end
local function suspended(n)
    if telling[1] then resumed[#resumed + 1] = "... > " .. frames(0) end
    local co = create(function()
        if version == "5.1" then return yields(n) end   -- cannot yield through pcall
        local ok, r = pcall(yields, n)
        return r
    end)
    assert(resume(co))
    assert(resume(co))
    resumed[#resumed] = nil
end

local text = ("x"):rep(200)
leaf_c = function(n)
    if telling[1] then
        telling[#telling + 1] = chain(0)
        return
    end
    for i = 1, n / 8000 do
        string.find(text, "x*y")
    end
end

local shares = {
    {"global", "leaf_global", function(n) local r = outer(n) return r end},
    {"deep", "leaf_deep", function(n) local r = deep(n, 30) return r end},
    {"method", "leaf_method", function(n) local r = Account.static(n) return r end},
    {"tail", "leaf_tail", function(n) local r = tail(n) return r end},
    {"meta", "leaf_meta", function(n) local r = meta + n return r end},
    {"iterator", "leaf_iterator", function(n) local r = iterate(n) return r end},
    {"sort", "leaf_sort", function(n) local r = sorted(n) return r end},
    {"gsub", "leaf_gsub", function(n) local r = substituted(n) return r end},
    {"caught", "leaf_caught", function(n) local r = caught(n) return r end},
    {"handler", "leaf_handler", function(n) local r = handled(n) return r end},
    {"coroutine", "leaf_coroutine", function(n) local r = coroutines(n) return r end},
    {"nested", "leaf_nested", function(n) local r = nested(n) return r end},
    {"resumed", "leaf_resumed", function(n) local r = suspended(n) return r end},
    {"c", "leaf_c", function(n) local r = leaf_c(n) return r end},
}

-- ---- the protocol ----

local function run(share, n)
    local body = share[3]
    local r = body(n)
    return r
end

local function tell()
    local f = assert(io.open(told .. ".stacks", "w"))
    for _, share in ipairs(shares) do
        telling[1] = true
        calls_from_c = version == "5.1" and (share[1] == "meta" or share[1] == "iterator")
        run(share, 1)
        local told_chain = telling[2]:gsub("> tell >", "> burn >")
        f:write(share[1], "\t", share[2], "\t", told_chain, " > ...\n")
        telling[1], telling[2], telling[3] = nil, nil, nil
    end
    f:close()
end

local function burn()
    local spent, first, last = {}, os.clock(), 0
    repeat
        local i = math.random(#shares)
        local before = os.clock()
        run(shares[i], math.random(20000, 200000))
        last = os.clock()
        spent[i] = (spent[i] or 0) + last - before
    until last - first >= seconds
    local f = assert(io.open(told, "w"))
    for i, share in ipairs(shares) do
        f:write(string.format("%s %.0f\n", share[1], (spent[i] or 0) * 1e9))
    end
    f:write(string.format("total %.0f\n", (last - first) * 1e9))
    f:close()
end

tell()
print("ready")
io.stdout:flush()
io.read()
burn()
print("done")
io.stdout:flush()
io.read()
