-- SPDX-License-Identifier: Apache-2.0
-- %b at each place of a text that never closes.
string.find(("("):rep(20000000), "%b()")
