-- SPDX-License-Identifier: Apache-2.0
-- A finalizer that never ends.
setmetatable({}, {__gc = function() while true do end end})
collectgarbage()
