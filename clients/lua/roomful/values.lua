--- JSON values in Lua: null, arrays, numbers and texts.
local values = {}

--- The JSON value null. A table cannot hold nil.
values.null = newproxy(true)
getmetatable(values.null).__tostring = function() return "null" end

local Array = {}

--- Marks a table as an array. An empty table without this mark is an object.
function values.array(items) return setmetatable(items or {}, Array) end

function values.is_array(value) return getmetatable(value) == Array end

--- Returns a copy of a container: only of its entries, not of what they contain.
function values.copy(container)
  local copy = setmetatable({}, getmetatable(container))
  for key, value in pairs(container) do
    copy[key] = value
  end
  return copy
end

--- Returns a list with `items` in the place of `removed` elements after the first `at`.
function values.splice(list, at, removed, items)
  local result = values.array()
  for index = 1, at do
    result[index] = list[index]
  end
  for _, item in ipairs(items) do
    result[#result + 1] = item
  end
  for index = at + removed + 1, #list do
    result[#result + 1] = list[index]
  end
  return result
end

--- Removes the fields that are null from an object, and returns it.
function values.without_nulls(object)
  for name, value in pairs(object) do
    if value == values.null then object[name] = nil end
  end
  return object
end

--- Returns the length of a table that is sent as an array; for an object nil and its number of keys.
--- Raises an error for a table that is neither.
function values.length(container)
  local length, size = #container, 0
  local is_array = values.is_array(container) or length > 0
  for key in pairs(container) do
    size = size + 1
    if type(key) ~= (is_array and "number" or "string") then
      error(("key %s: use 1, 2, 3 … in arrays, texts in objects"):format(tostring(key)), 0)
    end
  end
  if not is_array then return nil, size end
  if size ~= length then error("an array has a gap: use roomful.null in an empty place", 0) end
  return length
end

--- Raises an error for a number that JSON does not have.
function values.check_number(number)
  if number - number ~= 0 then error(number .. " cannot be sent: use a finite number", 0) end
end

-- The forms of UTF-8 characters of several bytes.
local FORMS = {
  "[\194-\223][\128-\191]",
  "\224[\160-\191][\128-\191]",
  "[\225-\236\238\239][\128-\191][\128-\191]",
  "\237[\128-\159][\128-\191]",
  "\240[\144-\191][\128-\191][\128-\191]",
  "[\241-\243][\128-\191][\128-\191][\128-\191]",
  "\244[\128-\143][\128-\191][\128-\191]",
}

--- Raises an error for a text that is not UTF-8: the server would end the client.
function values.check_text(text)
  if not text:find("[\128-\255]") then return end
  local rest = text
  for _, form in ipairs(FORMS) do
    rest = rest:gsub(form, " ")
  end
  if rest:find("[\128-\255]") then error(("a text is not UTF-8: %q"):format(text), 0) end
end

--- Returns the upper and the lower half of the 64 bits of a number. (With a union of ffi, the JIT
--- compiler may read a half from before the last write.)
function values.halves(number)
  if number == 0 then return 0, 0 end -- Also for -0, as checksums need it.
  local mantissa, exponent = math.frexp(math.abs(number))
  exponent = math.max(exponent + 1022, 0)
  mantissa = exponent > 0 and (mantissa * 2 - 1) * 2 ^ 52 or math.abs(number) * 2 ^ 1000 * 2 ^ 74
  local high = math.floor(mantissa / 2 ^ 32)
  local sign = number < 0 and 2 ^ 31 or 0
  return sign + exponent * 2 ^ 20 + high, mantissa - high * 2 ^ 32
end

--- Returns the number of these 64 bits.
function values.from_halves(high, low)
  local sign = high < 2 ^ 31 and 1 or -1
  high = high % 2 ^ 31
  local exponent, mantissa = math.floor(high / 2 ^ 20), high % 2 ^ 20 * 2 ^ 32 + low
  if exponent == 0 then return sign * math.ldexp(mantissa, -1074) end
  return sign * math.ldexp(mantissa + 2 ^ 52, exponent - 1075)
end

return values
