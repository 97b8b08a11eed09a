-- SPDX-License-Identifier: Apache-2.0
-- Lua in C in Lua, as deep as it goes, and there it loops.
local depth = 0
local function f()
  depth = depth + 1
  if not pcall(string.gsub, "x", "x", f) or depth > 180 then while true do end end
end
f()
