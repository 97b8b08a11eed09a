-- SPDX-License-Identifier: Apache-2.0
-- A set of millions of characters, held against millions.
string.find(("a"):rep(10000000), "[" .. ("b"):rep(10000000) .. "a]*c")
