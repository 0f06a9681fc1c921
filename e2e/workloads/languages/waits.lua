-- SPDX-License-Identifier: Apache-2.0
-- Known answer in Lua: it waits for a byte of its input, 25 ms each (fed.py), and allocates; prints
-- the lines of waits.c. A string that is repeated is made twice: in a buffer, and from that.
local size = 65536
local escaped
local schedstat = io.open("/proc/self/schedstat")
local leaked, held, burnt = {}, {}, 0

function reads_pipe() io.read(1) end

function allocates()
    for _ = 1, 8 do escaped = string.rep("x", size) end
end

function leaks() leaked[#leaked + 1] = string.rep("x", size) end

function holds(n)
    held = {}
    for i = 1, n do held[i] = string.rep("x", size) end
end

function burns()
    local began = os.clock()
    repeat local now = os.clock() until now >= began + 0.01
    burnt = burnt + os.clock() - began
end

-- For how long it could have run, had there been a CPU: microseconds.
local function late()
    schedstat:seek("set")
    return select(2, schedstat:read("n", "n")) / 1000
end

schedstat:setvbuf("no")
io.stdout:setvbuf("line")
local began, last, n, allocated, leak, holding = nil, os.time(), 0, 0, 0, 0
while true do
    reads_pipe()
    n = n + 1
    if n % 4 == 0 then
        allocates()
        allocated = allocated + 8 * 2 * size
        burns()
    end
    if n % 8 == 0 then
        leaks()
        leak = leak + size                -- what lives of it
    end
    local now = os.time()
    if now ~= last then
        last = now
        began = began or {now, os.clock(), late()}
        local want = (now - began[1]) % 40 < 20 and 64 or 0
        if want ~= holding then
            holding = want
            holds(want)
            collectgarbage()
        end
        -- it waits for the time that it is not on a CPU
        local waited = (now - began[1] - (os.clock() - began[2])) * 1e6
        print(string.format(
            "known %d reads_pipe=%.0f reads_pipe_late=%.0f allocates=%.0f leaks=%.0f"
                .. " burns=%.0f holds=%d",
            now, waited, late() - began[3], allocated, leak, burnt * 1e6, holding * size))
    end
end
