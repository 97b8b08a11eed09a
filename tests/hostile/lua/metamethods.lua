-- SPDX-License-Identifier: Apache-2.0
-- Operators that never end.
local m = setmetatable({}, {__lt = function() while true do end end})
table.sort({m, m, m})
