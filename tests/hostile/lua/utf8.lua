-- SPDX-License-Identifier: Apache-2.0
-- Large texts through utf8.
local s = ("\u{20AC}"):rep(5000000)
while true do
  pcall(utf8.len, s) pcall(utf8.codepoint, s, 1, -1) pcall(utf8.offset, s, -1, 1)
  for _ in utf8.codes(s) do end
end
