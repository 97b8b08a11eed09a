-- SPDX-License-Identifier: Apache-2.0
-- A format of pack with millions of options.
local f = ("<>"):rep(10000000)
while true do pcall(string.packsize, f) pcall(string.pack, f) pcall(string.unpack, f, "") end
