-- SPDX-License-Identifier: Apache-2.0
-- Tables in themselves.
local t = {}
for i = 1, 100 do t[i] = t end
while true do pcall(probing.publish, t) end
