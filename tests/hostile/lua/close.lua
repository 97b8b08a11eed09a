-- SPDX-License-Identifier: Apache-2.0
-- coroutine.close() of one with a variable whose __close never ends.
local co = coroutine.create(function()
  local x <close> = setmetatable({}, {__close = function() while true do end end})
  coroutine.yield()
end)
coroutine.resume(co)
coroutine.close(co)
