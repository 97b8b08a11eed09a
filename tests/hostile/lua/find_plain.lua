-- SPDX-License-Identifier: Apache-2.0
-- A plain text that is nearly there at each place.
string.find(("a"):rep(20000000), ("a"):rep(10000000) .. "b", 1, true)
