-- SPDX-License-Identifier: Apache-2.0
-- A pattern that explodes.
string.find(("a"):rep(3000), (".-"):rep(30) .. "b")
