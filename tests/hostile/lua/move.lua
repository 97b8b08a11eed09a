-- SPDX-License-Identifier: Apache-2.0
-- A C loop over an empty table.
table.move({}, 1, math.maxinteger - 1, 2)
