-- SPDX-License-Identifier: Apache-2.0
-- A table of which little is left.
local t = {}
for i = 1, 600000 do t["k" .. i] = true end
for i = 1, 599999 do t["k" .. i] = nil end
while true do next(t) end
