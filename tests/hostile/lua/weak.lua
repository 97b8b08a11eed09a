-- SPDX-License-Identifier: Apache-2.0
-- Weak keys whose values are the next keys, in no good order.
local n, keys, order = 200000, {}, {}
for i = 1, n do keys[i] = {} order[i] = i end
for i = n, 2, -1 do local j = math.random(i) order[i], order[j] = order[j], order[i] end
local all = {}
for i = 1, n - 1 do
  local at = order[i]
  all[at] = setmetatable({[keys[at]] = keys[at + 1]}, {__mode = "k"})
end
FIRST = keys[1]
keys = nil
while true do collectgarbage() end
