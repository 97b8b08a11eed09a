-- SPDX-License-Identifier: Apache-2.0
-- Errors whose text is made by a function that fails, or never ends.
local bad = setmetatable({}, {
  __tostring = function() while true do end end, __name = ("x"):rep(1000)})
error(bad)
