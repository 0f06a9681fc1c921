-- SPDX-License-Identifier: Apache-2.0
-- Three functions that take 50, 30 and 20 % of the CPU time, 2 ms at a time, in an order that is
-- drawn by chance.
local function burn(time)
    local stop, n = os.clock() + time, 0
    while os.clock() < stop do
        for i = 1, 500 do n = n + i * i % 7 end
    end
    return n
end

function share_50() return (burn(0.002)) end
function share_30() return (burn(0.002)) end
function share_20() return (burn(0.002)) end

local function run()
    math.randomseed(os.time())
    while true do
        local dice = math.random(10)
        if dice <= 5 then
            share_50()
        elseif dice <= 8 then
            share_30()
        else
            share_20()
        end
    end
end

run()
