-- SPDX-License-Identifier: Apache-2.0
-- Large texts that differ at the end, and with zeros in them.
local a, b = ("a\0"):rep(6000000), ("a\0"):rep(6000000) .. "b"
while true do local _ = a < b, a == b end
