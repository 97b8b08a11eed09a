-- SPDX-License-Identifier: Apache-2.0
-- The parts of `probing` that are made of its other parts.  Run in each script's state before the
-- script, with the private functions and the words that it was started with.
local own, words = ...
local probing = probing
local query, stamp = probing.query, probing.time

-- ---- probing.args ----

local function read_boolean(text)
    if text == true or text == "true" or text == "on" or text == "1" then return true end
    if text == false or text == "false" or text == "off" or text == "0" then return false end
end

local function read_integer(text)
    local n = tonumber(text)
    return n and math.tointeger(n)
end

local readers = {
    string = {tostring, "a text"},
    number = {tonumber, "a number"},
    integer = {read_integer, "a whole number"},
    boolean = {read_boolean, "true or false"},
    duration = {own.seconds, "a time such as 500ms, 1.5s or 10m"},
    bytes = {own.bytes, "a size such as 64KB or 1.5GB"},
}

local function sorted_keys(t)
    local keys = {}
    for key in pairs(t) do keys[#keys + 1] = tostring(key) end
    table.sort(keys)
    return keys
end

local function type_of(value)
    local t = math.type(value) == "integer" and "integer" or type(value)
    return t == "float" and "number" or t
end

local known = {type = true, default = true, doc = true, min = true, max = true}

-- A declaration in its long form: {type, default, doc, min, max}.
local function declaration(name, d)
    if type(name) ~= "string" then error("args: a parameter's name is a string", 0) end
    if type(d) ~= "table" then d = {default = d} end
    for key in pairs(d) do
        if not known[key] then
            error("args: parameter '" .. name .. "' has '" .. tostring(key)
                .. "'; there are type, default, doc, min and max", 0)
        end
    end
    local kind = d.type or (d.default == nil and "string") or type_of(d.default)
    if not readers[kind] then
        error("args: parameter '" .. name .. "' is of type '" .. tostring(kind)
            .. "'; there are " .. table.concat(sorted_keys(readers), ", "), 0)
    end
    return {type = kind, default = d.default, doc = d.doc, min = d.min, max = d.max}
end

local function read_value(name, d, text)
    local reader = readers[d.type]
    local value = reader[1](text)
    if value == nil then
        error("parameter " .. name .. "=" .. tostring(text) .. " must be " .. reader[2], 0)
    end
    for _, bound in ipairs{"min", "max"} do
        local limit = d[bound] and reader[1](d[bound])
        if limit and (bound == "min" and value < limit or bound == "max" and value > limit) then
            error("parameter " .. name .. "=" .. tostring(text) .. " must be at "
                .. (bound == "min" and "least " or "most ") .. tostring(d[bound]), 0)
        end
    end
    return value
end

local declared

function probing.args(declarations)
    if type(declarations) ~= "table" then error("args takes a table of parameters", 2) end
    if declared then error("args: parameters are declared once", 2) end
    declared = {}
    local values = {}
    for name, d in pairs(declarations) do
        d = declaration(name, d)
        declared[name] = d
        local text = words[name]
        if text == nil then text = d.default end
        if text ~= nil then values[name] = read_value(name, d, text) end
    end
    for name in pairs(words) do
        if not declared[name] then
            error("there is no parameter '" .. name .. "'; this script has "
                .. table.concat(sorted_keys(declared), ", "), 0)
        end
    end
    return values
end

-- Words for a script that declares none would be lost without a sound.
function own.refuse_unused_words()
    if not declared and next(words) then
        error("this script has no parameters, and was given " .. sorted_keys(words)[1], 0)
    end
end

-- ---- probing.window ----

local window = {}
window.__index = window

local function since(w)
    return stamp(probing.now() - w.span_ns)
end

-- The statistic of the values of the last span, nil where there are none.  It is kept for a
-- hundredth of the span, so that asking in each call of a point costs nothing.
local function ask(w, what, order)
    local now, kept = probing.now(), w.kept[what]
    if kept and now - kept.at < w.span_ns // 100 then return kept.value end
    local row = query("select " .. what .. " as v from " .. w.source .. " where ts > ? and "
        .. w.column .. " is not null" .. (order or ""), since(w)):next()
    w.kept[what] = {at = now, value = row and row.v}
    return row and row.v
end

for name, what in pairs{count = "count(%s)", mean = "avg(%s)", min = "min(%s)", max = "max(%s)",
    sum = "sum(%s)", median = "median(%s)", stddev = "stddev(%s)"} do
    window[name] = function(w)
        return ask(w, what:format(w.column))
    end
end

-- The p-th percentile, p from 0 to 100.
function window:p(p)
    if type(p) ~= "number" or p < 0 or p > 100 then error("p takes a number from 0 to 100", 2) end
    return ask(self, ("percentile_cont(%.17g) within group (order by %s)"):format(p / 100,
        self.column))
end

-- How much the value grows in a second, by least squares.
function window:slope()
    local from = since(self)
    local r = query("select avg(x * y) as xy, avg(x) as x, avg(y) as y, avg(x * x) as xx from "
        .. "(select extract(epoch from ts - ?) as x, " .. self.column .. " as y from "
        .. self.source .. " where ts > ? and " .. self.column .. " is not null) w",
        from, from):next()
    local spread = r and r.x and r.xx - r.x * r.x
    if spread and spread > 0 then return (r.xy - r.x * r.y) / spread end
end

function window:last()
    return ask(self, self.column, " order by ts desc limit 1")
end

function probing.window(name, span)
    if type(name) ~= "string" or type(span) ~= "string" and type(span) ~= "number" then
        error('window takes "TABLE.COLUMN" and a span such as "10m"', 2)
    end
    local source, column = name:match("^([%w_.]+)%.([%w_]+)$")
    if not source then error("window: '" .. name .. "' is not TABLE.COLUMN", 2) end
    local seconds = own.seconds(span)
    if not seconds or seconds <= 0 then
        error("window: '" .. tostring(span) .. "' is no time such as 10m", 2)
    end
    return setmetatable({source = source, column = column,
        span_ns = math.floor(seconds * 1e9), kept = {}}, window)
end

-- ---- probing.stack ----

-- The frames of a thread as it is now, the innermost first.
function probing.stack(tid)
    local frames = {}
    for r in query("select * from python.backtrace where thread_id = ? order by depth", tid) do
        frames[#frames + 1] = r
    end
    return frames
end

-- ---- probing.api ----

local API = 1
function probing.api(version)
    if math.type(version) ~= "integer" or version < 1 then
        error("api takes the number of the version that the script was written for, as 1", 2)
    end
    if version > API then
        error("this script is written for version " .. version .. " of the API, and probing "
            .. probing.version .. " has " .. API, 0)
    end
    return API
end

own.declaration, own.sorted_keys = declaration, sorted_keys
