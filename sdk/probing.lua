-- SPDX-License-Identifier: Apache-2.0
---@meta
-- Types of what a probe script sees, for editors with LuaLS (sumneko): add the folder of this file
-- to `workspace.library`.  Nothing here runs; docs/lua.md says what each function does.

---@class probing
---@field version string the core's version
---@field name string the script's name
---@field state table kept over `script reload`, as JSON
---@field json probing.json
probing = {}

---@alias probing.type "i64"|"f64"|"str"|"time"
---@alias probing.period string|number a time such as "10ms", or seconds
---@alias probing.row table<string, any> one row, by the names of its columns

---@class probing.json
---@field encode fun(value: any): string
---@field decode fun(text: string): any

---@class probing.table
local t = {}
---@param row table<string, number|string|nil>
---@return boolean stored false: there was no room
function t:add(row) end

---@class probing.rows
---@operator call: probing.row?
local rows = {}
---@return probing.row?
function rows:next() end
---@return probing.row[]
function rows:all() end
---@return boolean
function rows:truncated() end

---@class probing.timer
local timer = {}
---@return boolean cancelled false: it had ended
function timer:cancel() end

---@class probing.moment
---@class probing.window
local window = {}
---@return integer?
function window:count() end
---@return number?
function window:mean() end
---@return number?
function window:median() end
---@return number?
function window:min() end
---@return number?
function window:max() end
---@return number?
function window:sum() end
---@return number?
function window:stddev() end
---@return number? slope per second
function window:slope() end
---@return number?
function window:last() end
---@param percentile number from 0 to 100
---@return number?
function window:p(percentile) end

---@class probing.parameter
---@field type? "string"|"number"|"integer"|"boolean"|"duration"|"bytes"
---@field default? string|number|boolean
---@field doc? string
---@field min? string|number
---@field max? string|number

---@param name string
---@param columns table<string, probing.type>|[string, probing.type][]
---@param options? {keep?: string, keep_bytes?: string, doc?: string}
---@return probing.table
function probing.table(name, columns, options) end

---@param sql string
---@param ... nil|boolean|number|string|probing.moment values for `?` and `$1`
---@return probing.rows
function probing.query(sql, ...) end

---@param period probing.period
---@param fn fun()
---@param name? string
---@return probing.timer
function probing.every(period, fn, name) end

---@param delay probing.period
---@param fn fun()
---@param name? string
---@return probing.timer
function probing.after(delay, fn, name) end

---@param name string a table or view, see probing.events
---@param where string a condition in SQL
---@param fn fun(row: probing.row)
---@param options? {wait?: boolean}
---@return probing.timer
---@overload fun(name: string, fn: fun(row: probing.row), options?: {wait?: boolean}): probing.timer
function probing.on(name, where, fn, options) end

---@param fn fun()
function probing.at_stop(fn) end

---@param declarations table<string, probing.parameter|string|number|boolean>
---@return table<string, any> values
function probing.args(declarations) end

---@param name string "TABLE.COLUMN"
---@param span probing.period
---@return probing.window
function probing.window(name, span) end

---@param tid integer
---@return probing.row[] frames the innermost first
function probing.stack(tid) end

---@param value any
---@param topic? string
---@return boolean sent false: too many wait
function probing.publish(value, topic) end

---@param text string
---@param level? "error"|"warn"|"info"|"debug"
function probing.log(text, level) end

---@return integer ns UTC
function probing.now() end

---@param ns integer UTC
---@return probing.moment
function probing.time(ns) end

---@param name string
---@param value? string
---@return string
function probing.config(name, value) end

---@param path string below /proc or /sys
---@return string? text
---@return string? why
function probing.read(path) end

---@param name string
---@return boolean loaded
---@return string? why
function probing.plugin(name) end

---@param version integer
---@return integer
function probing.api(version) end

function probing.stop() end
