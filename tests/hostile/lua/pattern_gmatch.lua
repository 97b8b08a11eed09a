-- SPDX-License-Identifier: Apache-2.0
-- A pattern that explodes in an iterator.
for _ in string.gmatch(("ab"):rep(3000), ("(.-)"):rep(30) .. "c") do end
