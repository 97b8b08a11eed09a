-- SPDX-License-Identifier: Apache-2.0
-- More events than anybody can take.
local t = {}
for i = 1, 1000 do t[i] = {i} end
while true do probing.publish(t) probing.publish(1) end
