-- SPDX-License-Identifier: Apache-2.0
-- A pattern that explodes in gsub.
string.gsub(("a"):rep(3000), ("a?"):rep(150) .. ("a"):rep(150) .. "b", "%0%0")
