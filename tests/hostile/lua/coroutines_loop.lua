-- SPDX-License-Identifier: Apache-2.0
-- A new coroutine each time, each does little.
while true do pcall(coroutine.wrap(function() error("x") end)) end
