-- SPDX-License-Identifier: Apache-2.0
-- print() in print() in print().
local t = setmetatable({}, {})
getmetatable(t).__tostring = function() print(t) return "t" end
while true do pcall(print, t) end
