-- SPDX-License-Identifier: Apache-2.0
-- As many values as the stack holds, again and again.
while true do pcall(table.unpack, {}, 1, 990000) pcall(select, "#", table.unpack({}, 1, 200000)) end
