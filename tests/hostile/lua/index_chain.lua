-- SPDX-License-Identifier: Apache-2.0
-- A chain of __index that never ends.
local a = setmetatable({}, {})
getmetatable(a).__index = a
while true do pcall(function() return a.x end) pcall(function() a.x = 1 end) end
