--- JSON texts.
local here = (...):gsub("[^.]*$", "")
local values = require(here .. "values")
local json = {}

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }
local UNESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local WORDS = { ["true"] = true, ["false"] = false, null = values.null }

local function escape(char) return ESCAPES[char] or ("\\u%04x"):format(char:byte()) end

local function quote(text)
  values.check_text(text)
  return '"' .. text:gsub('[%c"\\]', escape) .. '"'
end

local function number_text(number)
  values.check_number(number)
  if number % 1 == 0 and math.abs(number) < 2 ^ 53 then return ("%.0f"):format(number) end
  local text = ("%.15g"):format(number)
  return tonumber(text) == number and text or ("%.17g"):format(number)
end

--- Returns the JSON text of a value. Raises an error for one that JSON does not have.
function json.encode(value)
  local kind = type(value)
  if kind == "string" then return quote(value) end
  if kind == "number" then return number_text(value) end
  if kind == "boolean" or value == values.null then return tostring(value) end
  if kind ~= "table" then error(("a %s cannot be sent: use plain data"):format(kind), 0) end
  local parts, length = {}, values.length(value)
  for key, item in pairs(value) do
    local text = json.encode(item)
    parts[length and key or #parts + 1] = length and text or quote(key) .. ":" .. text
  end
  local text = table.concat(parts, ",")
  return length and "[" .. text .. "]" or "{" .. text .. "}"
end

local function utf8(code)
  local last, middle = 0x80 + code % 64, 0x80 + math.floor(code / 64) % 64
  local third = math.floor(code / 4096)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), last) end
  if code < 0x10000 then return string.char(0xE0 + third, middle, last) end
  return string.char(0xF0 + math.floor(third / 64), 0x80 + third % 64, middle, last)
end

local function unescape(text)
  local high -- The first half of a surrogate pair.
  local result = text:gsub("\\(.)(%x?%x?%x?%x?)", function(char, digits)
    if char ~= "u" then return (UNESCAPES[char] or char) .. digits end
    local code = tonumber(digits, 16)
    if code >= 0xD800 and code < 0xDC00 then
      high = code
      return ""
    end
    if code < 0xDC00 or code >= 0xE000 then return utf8(code) end
    return utf8(0x10000 + (high - 0xD800) * 0x400 + code - 0xDC00)
  end)
  return result
end

local function fail(text, at)
  error(("the text is not JSON at byte %d: %q"):format(at, text:sub(at, at + 20)), 0)
end

--- Returns the string that begins at a quote, and the place after it.
local function read_string(text, start)
  local at = start + 1
  while true do
    local stop = text:find('["\\]', at) or fail(text, start)
    if text:byte(stop) == 34 then
      local part = text:sub(start + 1, stop - 1)
      return at > start + 1 and unescape(part) or part, stop + 1
    end
    at = stop + 2
  end
end

--- Returns the place of the next character that is not white space. Checks that it is `char`.
local function next_char(text, at, char)
  at = text:find("[^ \t\r\n]", at) or fail(text, at)
  if char and text:sub(at, at) ~= char then fail(text, at) end
  return at
end

local function read(text, at)
  at = next_char(text, at)
  local char = text:sub(at, at)
  if char == '"' then return read_string(text, at) end
  if char ~= "{" and char ~= "[" then
    local word = text:match("^[%w.+-]+", at) or fail(text, at)
    local value = WORDS[word]
    if value == nil then value = tonumber(word) or fail(text, at) end
    return value, at + #word
  end
  local is_array, index = char == "[", 0
  local result, close = is_array and values.array() or {}, is_array and "]" or "}"
  at = next_char(text, at + 1)
  if text:sub(at, at) == close then return result, at + 1 end
  repeat
    local key
    if is_array then
      index = index + 1
      key = index
    else
      key, at = read_string(text, next_char(text, at, '"'))
      at = next_char(text, at, ":") + 1
    end
    result[key], at = read(text, at)
    at = next_char(text, at) + 1
    local mark = text:sub(at - 1, at - 1)
    if mark ~= close and mark ~= "," then fail(text, at - 1) end
  until mark == close
  return result, at
end

--- Returns the value of a JSON text. Raises an error for any other text.
function json.decode(text)
  local value, at = read(text, 1)
  if text:find("[^ \t\r\n]", at) then fail(text, at) end
  return value
end

return json
