-- SPDX-License-Identifier: Apache-2.0
-- Keys that collide only when the table grows from 2^19 to 2^20: then each meets all others.
local t, step = {}, 2^20 // 1 - 1
for i = 1, 2^19 do t[math.tointeger(i * step)] = true end
t.x = true
