-- SPDX-License-Identifier: Apache-2.0
-- A deep text to compile.
while true do
  pcall(load, "return " .. ("("):rep(1000000)) pcall(load, ("{"):rep(100000))
  pcall(load, ("function f() "):rep(190)) pcall(load, "x=" .. ("a.."):rep(180) .. "a")
end
