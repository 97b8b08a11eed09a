-- SPDX-License-Identifier: Apache-2.0
-- A pattern that explodes, anchored.
string.match(("a"):rep(30000), "^" .. ("a*"):rep(100) .. "b")
