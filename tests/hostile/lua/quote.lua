-- SPDX-License-Identifier: Apache-2.0
-- %q of a large text of control characters.
local s = ("\1"):rep(6000000)
while true do pcall(string.format, "%q", s) end
