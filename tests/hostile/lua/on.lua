-- SPDX-License-Identifier: Apache-2.0
-- Points of rows whose functions loop, fail, cancel each other and make more of them.
local t = probing.table("hostile_on", {n = "i64"})
for i = 1, 64 do
    pcall(probing.on, "script.hostile_on", "n % " .. i .. " = 0", function(r)
        pcall(probing.on, "script.hostile_on", function() while true do end end)
        t:add{n = r.n}
        error(r)
    end)
end
probing.every("10ms", function() for n = 1, 1000 do t:add{n = n} end end)
