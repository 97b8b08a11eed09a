-- SPDX-License-Identifier: Apache-2.0
-- 2,000 times __index, each time past 2^15 keys that collide.
local t, step = {}, 2^16 // 1 - 1
for i = 1, 2^15 do t[math.tointeger(i * step)] = true end
t.x = true
setmetatable(t, {__index = t})
while true do pcall(function() return t[0] end) end
