-- SPDX-License-Identifier: Apache-2.0
-- A comparer that lies, over a table that says it is large.
local t = setmetatable({}, {__len = function() return 2^31 - 2 end,
  __index = function() return 1 end, __newindex = function() end})
while true do pcall(table.sort, t, function() return math.random() < 0.5 end) end
