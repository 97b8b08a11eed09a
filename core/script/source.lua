-- SPDX-License-Identifier: Apache-2.0
-- What can be said of a script without running it: `script help` and `script check`.  Run after the
-- prelude, in a state that the script itself never enters.
local own = ...

-- ---- tokens ----

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
    return then true until while]]):gmatch("%a+") do KEYWORDS[word] = true end

local SIGNS = {"...", "<<", ">>", "//", "==", "~=", "<=", ">=", "::", ".."}

-- The end of a long bracket that opens at `at`, and the text inside; nil: none opens there.
local function long_bracket(source, at)
    local level = source:match("^%[(=*)%[", at)
    if not level then return end
    local open = at + #level + 2
    local from, to = source:find("]" .. level .. "]", open, true)
    return to or #source, source:sub(open, (from or #source + 1) - 1)
end

-- The text between quotes; escapes stay as written but for those of quotes.
local function quoted(source, at)
    local quote, i = source:sub(at, at), at + 1
    while i <= #source do
        local ch = source:sub(i, i)
        if ch == quote or ch == "\n" then break end
        i = i + (ch == "\\" and 2 or 1)
    end
    return i, source:sub(at + 1, i - 1):gsub("\\(['\"\\])", "%1")
end

local function sign(source, at)
    for _, s in ipairs(SIGNS) do
        if source:sub(at, at + #s - 1) == s then return s end
    end
    return source:sub(at, at)
end

-- All tokens: {kind, text, line, at}; kinds are name, word (a keyword), string, number, sign.
local function tokenize(source)
    local tokens, at, line = {}, 1, 1
    local function add(kind, text, to)
        tokens[#tokens + 1] = {kind = kind, text = text, line = line, at = at, to = to}
    end
    while at <= #source do
        local ch, to, text = source:sub(at, at), nil, nil
        if source:find("^%-%-", at) then
            to = long_bracket(source, at + 2) or (source:find("\n", at, true) or #source + 1) - 1
        elseif ch:find("%s") then
            to = at
        elseif ch:find("[%a_]") then
            text = source:match("^[%w_]+", at)
            to = at + #text - 1
            add(KEYWORDS[text] and "word" or "name", text, to)
        elseif ch:find("%d") or source:find("^%.%d", at) then
            text = source:match("^0[xX][%x.]+[pP][+-]?%d+", at) or source:match("^0[xX][%x.]+", at)
                or source:match("^[%d.]+[eE][+-]?%d+", at) or source:match("^[%d.]+", at)
            to = at + #text - 1
            add("number", text, to)
        elseif ch == '"' or ch == "'" then
            to, text = quoted(source, at)
            add("string", text, to)
        else
            to, text = long_bracket(source, at)
            if to then
                add("string", text, to)
            else
                text = sign(source, at)
                to = at + #text - 1
                add("sign", text, to)
            end
        end
        local _, lines = source:sub(at, to):gsub("\n", "")
        line, at = line + lines, to + 1
    end
    return tokens
end

local OPEN, CLOSE = {["("] = true, ["{"] = true, ["["] = true}, {[")"] = true, ["}"] = true,
    ["]"] = true}

-- The index of the sign that closes what opens at `i`.
local function closing(tokens, i)
    local depth = 0
    for k = i, #tokens do
        local t = tokens[k]
        if t.kind == "sign" and OPEN[t.text] then depth = depth + 1 end
        if t.kind == "sign" and CLOSE[t.text] then
            depth = depth - 1
            if depth == 0 then return k end
        end
    end
end

-- Is token i the sign, or keyword, `text`?
local function is(tokens, i, text)
    local t = tokens[i]
    return t and (t.kind == "sign" or t.kind == "word") and t.text == text
end

local function is_name(tokens, i, text)
    local t = tokens[i]
    return t and t.kind == "name" and (not text or t.text == text)
end

-- ---- help ----

local function first_comment(source)
    local lines = {}
    for line in source:gmatch("([^\n]*)\n?") do
        local text = line:match("^%-%-%s?(.*)")
        if not text then break end
        if not text:find("^SPDX") then lines[#lines + 1] = text end
    end
    return table.concat(lines, "\n")
end

-- The text of the argument of probing.args; nil: it is not called.
local function args_text(source)
    local tokens = tokenize(source)
    for i = 1, #tokens do
        if is_name(tokens, i, "probing") and is(tokens, i + 1, ".")
            and is_name(tokens, i + 2, "args") then
            local open = i + 3
            if is(tokens, open, "(") then open = open + 1 end
            local close = is(tokens, open, "{") and closing(tokens, open)
            return close and source:sub(tokens[open].at, tokens[close].to) or ""
        end
    end
end

local function parameter_line(name, d)
    local default = d.default == nil and "" or "=" .. tostring(d.default)
    local bounds = (d.min and ", at least " .. tostring(d.min) or "")
        .. (d.max and ", at most " .. tostring(d.max) or "")
    return ("  %-24s %s%s%s"):format(name .. default, d.type, bounds, d.doc and "; " .. d.doc or "")
end

function own.help(source)
    local lines, text = {}, args_text(source)
    local comment = first_comment(source)
    if comment ~= "" then lines[1] = comment end
    if not text then
        lines[#lines + 1] = "It has no parameters."
        return table.concat(lines, "\n")
    end
    local made = load("return " .. text, "=args", "t", {})
    local good, declared = pcall(made or error)
    if not good or type(declared) ~= "table" then
        error("its parameters can't be read without running it: probing.args takes a table of "
            .. "plain values, as probing.args{limit = \"1s\"}", 0)
    end
    lines[#lines + 1] = "Parameters:"
    for _, name in ipairs(own.sorted_keys(declared)) do
        lines[#lines + 1] = parameter_line(name, own.declaration(name, declared[name]))
    end
    return table.concat(lines, "\n")
end

-- ---- check ----

-- Names that a script gives to something itself, wherever that is: what is left is a mistake.
local function own_names(tokens)
    local names = {}
    local function take_list(i)
        while is_name(tokens, i) do
            names[tokens[i].text] = true
            i = i + 1
            if is(tokens, i, "<") then -- <const>
                names[tokens[i + 1].text] = true
                i = i + 3
            end
            if not is(tokens, i, ",") then break end
            i = i + 1
        end
    end
    for i = 1, #tokens do
        if is(tokens, i, "local") and is(tokens, i + 1, "function") then
            take_list(i + 2)
        elseif is(tokens, i, "local") or is(tokens, i, "for") then
            take_list(i + 1)
        elseif is(tokens, i, "function") then
            if is_name(tokens, i + 1) and is(tokens, i + 2, "(") then take_list(i + 1) end
            local k = i + 1
            while tokens[k] and not is(tokens, k, "(") do
                if is(tokens, k, ":") then names.self = true end
                k = k + 1
            end
            take_list(k + 1)
        elseif is_name(tokens, i) and is(tokens, i + 1, "=") then
            names[tokens[i].text] = true
        elseif is(tokens, i, "goto") or is(tokens, i, "::") then
            if is_name(tokens, i + 1) then names[tokens[i + 1].text] = true end
        elseif is_name(tokens, i) and is(tokens, i + 1, ",") and not is(tokens, i - 1, ".") then
            local k = i -- a, b = ...
            while is_name(tokens, k) and is(tokens, k + 1, ",") do k = k + 2 end
            if is_name(tokens, k) and is(tokens, k + 1, "=") then take_list(i) end
        end
    end
    return names
end

local function distance(a, b)
    local row = {}
    for k = 0, #b do row[k] = k end
    for i = 1, #a do
        local diagonal = row[0]
        row[0] = i
        for k = 1, #b do
            local cost = diagonal + (a:byte(i) == b:byte(k) and 0 or 1)
            diagonal = row[k]
            row[k] = math.min(row[k] + 1, row[k - 1] + 1, cost)
        end
    end
    return row[#b]
end

local function hint(name, known)
    local best, least = nil, math.max(2, #name // 3) + 1
    for _, candidate in ipairs(own.sorted_keys(known)) do
        local d = #candidate < 40 and #name < 40 and distance(name, candidate) or least
        if d < least then best, least = candidate, d end
    end
    return best and "; did you mean '" .. best .. "'?" or ""
end

-- The arguments of the functions of `probing`: s text, n number, f function, t table, d a time, q a
-- statement, v anything; a capital letter may be left out, several in brackets are one or another.
local SIGNATURES = {
    table = {"s", "t", "T"}, query = {"q"}, every = {"d", "f", "S"}, after = {"d", "f", "S"},
    at_stop = {"f"}, publish = {"v", "S"}, log = {"s", "S"}, now = {}, time = {"n"},
    config = {"s", "V"}, read = {"s"}, plugin = {"s"}, stop = {}, args = {"t"}, api = {"n"},
    window = {"s", "d"}, stack = {"n"},
}
local KINDS = {s = "a text", n = "a number", f = "a function", t = "a table",
    d = "a time such as \"5s\"", q = "a statement"}

-- The kind of an argument, "v" where only running it would tell, and its token.
local function kind_of(tokens, from, to)
    local t = tokens[from]
    if is(tokens, from, "function") then return "f", t end
    if is(tokens, from, "{") and closing(tokens, from) == to then return "t", t end
    if from ~= to then return "v", t end
    if t.kind == "string" then return "s", t end
    if t.kind == "number" then return "n", t end
    if is(tokens, from, "nil") then return "0", t end
    if is(tokens, from, "true") or is(tokens, from, "false") then return "b", t end
    return "v", t
end

local function arguments(tokens, open)
    local close, list = closing(tokens, open), {}
    if not close then return list end
    local from, depth, blocks = open + 1, 0, 0
    for k = open + 1, close do
        local t = tokens[k]
        if t.kind == "word" and (t.text == "function" or t.text == "do" or t.text == "then"
            or t.text == "repeat") then blocks = blocks + 1 end
        if t.kind == "word" and (t.text == "end" or t.text == "until" or t.text == "elseif") then
            blocks = blocks - 1
        end
        local ends = k == close or (depth == 0 and blocks == 0 and is(tokens, k, ","))
        if ends and k > from then
            list[#list + 1] = {kind_of(tokens, from, k - 1)}
            from = k + 1
        end
        if t.kind == "sign" and OPEN[t.text] then depth = depth + 1 end
        if t.kind == "sign" and CLOSE[t.text] then depth = depth - 1 end
    end
    return list
end

local function fits(wanted, kind, token)
    if kind == "v" or wanted == "v" or kind == wanted then return true end
    if wanted == "d" then
        return kind == "n" or kind == "s" and own.seconds(token.text) ~= nil
    end
    if wanted == "q" then return kind == "s" end
    return wanted == "s" and kind == "n"
end

local function check_call(report, name, list, line)
    local signature = SIGNATURES[name]
    if not signature then return end
    for i, wanted in ipairs(signature) do
        local lower = wanted:lower()
        local argument = list[i]
        if not argument or argument[1] == "0" then
            if lower == wanted and wanted ~= "v" then
                report(line, "probing." .. name .. " takes " .. KINDS[wanted] .. " as argument "
                    .. i)
            end
        elseif not fits(lower, argument[1], argument[2]) then
            report(argument[2].line, "probing." .. name .. " takes " .. KINDS[lower]
                .. " as argument " .. i)
        elseif lower == "q" and argument[1] == "s" then
            local why = own.check_sql(argument[2].text)
            if why then report(argument[2].line, "the statement: " .. why) end
        end
    end
    if #list > #signature and name ~= "query" then
        report(line, ("probing.%s takes %d arguments at most, not %d"):format(name, #signature,
            #list))
    end
end

local function check_tokens(tokens, report)
    local names, reported = own_names(tokens), {}
    for i, t in ipairs(tokens) do
        local is_field = is(tokens, i - 1, ".") or is(tokens, i - 1, ":")
        local is_key = is(tokens, i + 1, "=") and (is(tokens, i - 1, "{") or is(tokens, i - 1, ",")
            or is(tokens, i - 1, ";"))
        if t.kind == "name" and not is_field and not is_key then
            local value = _G[t.text]
            if value == nil and not names[t.text] and not reported[t.text] then
                reported[t.text] = true
                report(t.line, "unknown name '" .. t.text .. "'" .. hint(t.text, _G))
            end
            local field = tokens[i + 2]
            if type(value) == "table" and t.text ~= "_G" and not names[t.text]
                and is(tokens, i + 1, ".") and field and field.kind == "name" then
                if value[field.text] == nil and not is(tokens, i + 3, "=") then
                    report(field.line, ("%s has no '%s'%s"):format(t.text, field.text,
                        hint(field.text, value)))
                elseif t.text == "probing" and is(tokens, i + 3, "(") then
                    check_call(report, field.text, arguments(tokens, i + 3), field.line)
                end
            end
        end
    end
end

-- Lines "name:3: unknown name 'foo'", or nil: nothing was found.
function own.check(source)
    local lines = {}
    local made, why = load(source, "=" .. probing.name, "t")
    if not made then return why end
    check_tokens(tokenize(source), function(line, text)
        lines[#lines + 1] = {line = line, text = ("%s:%d: %s"):format(probing.name, line, text)}
    end)
    table.sort(lines, function(a, b) return a.line < b.line end)
    for i, l in ipairs(lines) do lines[i] = l.text end
    return lines[1] and table.concat(lines, "\n")
end

-- ---- reload ----

function own.compile(source)
    local made, why = load(source, "=" .. probing.name, "t")
    if not made then error(why, 0) end
end
