-- SPDX-License-Identifier: Apache-2.0
-- Many coroutines, each with a little stack.
local all = {}
while true do
  local ok = pcall(function()
    local co = coroutine.wrap(function() local a = {} coroutine.yield(a) end)
    co()
    all[#all + 1] = co
  end)
  if not ok then all = {} end
end
