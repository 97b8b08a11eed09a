-- SPDX-License-Identifier: Apache-2.0
-- Whole collections of much.
local t = {}
for i = 1, 300000 do t[i] = {i} end
while true do
  collectgarbage() collectgarbage("step")
  collectgarbage("generational") collectgarbage("incremental")
end
