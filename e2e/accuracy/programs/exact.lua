-- SPDX-License-Identifier: Apache-2.0
-- exact: in Lua: it has no waits of its own but for other processes; its protocol is exact.h's.
local told, rounds = arg[1], tonumber(arg[2])

function reads_pipe(child)
    child:read(1)
end

function waits_for_child()
    os.execute("sleep 0.05")
end

-- Lua has no clock of its own but the CPU's and whole seconds: the kernel's, in hundredths.
local function now()
    local f = io.open("/proc/uptime")
    local seconds = f:read("*n")
    f:close()
    return seconds
end

local function waits(name, cause, f, prepares)
    local sum = 0
    for _ = 1, rounds do
        local child = prepares and prepares()
        local before, cpu = now(), os.clock()
        f(child)
        sum = sum + (now() - before) - (os.clock() - cpu)
        if child then child:close() end
    end
    return string.format("off-cpu %s %d %s\n", name, math.floor(sum * 1e6), cause)
end

-- A function has the name that it is called by.
io.write("ready\n")
io.flush()
io.read("*l")
local text = waits("reads_pipe", "pipe", function(child) reads_pipe(child) return nil end,
    function() return io.popen("sleep 0.05; echo x") end)
text = text .. waits("waits_for_child", "other", function() waits_for_child() return nil end)
local out = io.open(told, "w")
out:write(text)
out:close()
io.write("done\n")
io.flush()
io.read("*a")
