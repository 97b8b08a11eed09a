-- SPDX-License-Identifier: Apache-2.0
-- A large text to compile.
local s = ("x=1 "):rep(4000000)
while true do pcall(load, s) end
