-- SPDX-License-Identifier: Apache-2.0
-- A __close that never ends, called because of an error, below others.
pcall(function()
  local a <close> = setmetatable({}, {__close = function() while true do end end})
  local b <close> = setmetatable({}, {__close = function() error("b") end})
  error("a")
end)
