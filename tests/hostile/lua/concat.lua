-- SPDX-License-Identifier: Apache-2.0
-- A table that says it is endless.
table.concat(setmetatable({}, {__index = function() return "" end}), "", 1, math.maxinteger - 1)
