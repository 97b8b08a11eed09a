-- SPDX-License-Identifier: Apache-2.0
-- Message handlers that fail, each with a handler of its own.
local function h() return xpcall(error, h) end
while true do h() end
