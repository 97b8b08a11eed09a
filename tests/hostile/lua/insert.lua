-- SPDX-License-Identifier: Apache-2.0
-- A length that lies.
table.insert(setmetatable({}, {__len = function() return math.maxinteger - 1 end}), 1, 0)
