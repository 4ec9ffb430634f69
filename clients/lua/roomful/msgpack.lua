--- MessagePack values, with the decimals of the protocol (R30).
local here = (...):gsub("[^.]*$", "")
local values = require(here .. "values")
local msgpack = {}

local char, floor = string.char, math.floor

--- Returns an unsigned integer in so many bytes, the highest first.
function msgpack.uint(number, size)
  local bytes = {}
  for place = size, 1, -1 do
    bytes[place] = char(number % 256)
    number = floor(number / 256)
  end
  return table.concat(bytes)
end

local uint = msgpack.uint

--- Returns the start of a text, an array or a map: `fixed` plus a size below `limit`, or a code.
local function head(size, fixed, limit, code)
  if size < limit then return char(fixed + size) end
  if size < 2 ^ 16 then return char(code) .. uint(size, 2) end
  return char(code + 1) .. uint(size, 4)
end

local function encode_number(number)
  values.check_number(number)
  if number % 1 == 0 and number >= -32 and number < 2 ^ 32 then
    if number < 2 ^ 7 then return char(number % 256) end
    return number < 2 ^ 16 and "\205" .. uint(number, 2) or "\206" .. uint(number, 4)
  end
  local high, low = values.halves(number)
  return "\203" .. uint(high, 4) .. uint(low, 4)
end

--- Returns the bytes of a value. Raises an error for one that JSON does not have.
function msgpack.encode(value)
  local kind = type(value)
  if kind == "number" then return encode_number(value) end
  if kind == "string" then
    values.check_text(value)
    return head(#value, 0xA0, 32, 0xDA) .. value
  end
  if value == values.null then return "\192" end
  if kind == "boolean" then return value and "\195" or "\194" end
  if kind ~= "table" then error(("a %s cannot be sent: use plain data"):format(kind), 0) end
  local length, size = values.length(value)
  local parts = { length and head(length, 0x90, 16, 0xDC) or head(size, 0x80, 16, 0xDE) }
  for key, item in pairs(value) do
    local bytes = msgpack.encode(item)
    parts[length and key + 1 or #parts + 1] = length and bytes or msgpack.encode(key) .. bytes
  end
  return table.concat(parts)
end

local read

local function read_int(data, at, size, is_signed)
  local number = 0
  for index = at, at + size - 1 do
    number = number * 256 + (data:byte(index) or error("the frame ends early", 0))
    if is_signed and index == at and number >= 128 then number = number - 256 end
  end
  return number, at + size
end

local function read_text(data, at, size)
  if at + size - 1 > #data then error("the frame ends early", 0) end
  return data:sub(at, at + size - 1), at + size
end

local function read_array(data, at, size)
  local result = values.array()
  for index = 1, size do
    result[index], at = read(data, at)
  end
  return result, at
end

local function read_map(data, at, size)
  local result = {}
  for _ = 1, size do
    local key
    key, at = read(data, at)
    result[key], at = read(data, at)
  end
  return result, at
end

local function read_float(data, at, size)
  local high, low = read_int(data, at, 4), size == 8 and read_int(data, at + 4, 4) or 0
  if size == 8 then return values.from_halves(high, low), at + 8 end
  local exponent, mantissa = floor(high / 2 ^ 23) % 256, high % 2 ^ 23
  if exponent > 0 then mantissa = mantissa + 2 ^ 23 end
  local number = math.ldexp(mantissa, math.max(exponent, 1) - 150)
  return high < 2 ^ 31 and number or -number, at + 4
end

local function read_decimal(data, at, size)
  local kind, rest = read_int(data, at, 1), read_int(data, at + 1, size)
  local mantissa = kind % 16 < 8 and kind % 16 or kind % 16 - 16
  return (mantissa * 256 ^ size + rest) / 10 ^ (floor(kind / 16) + 1), at + 1 + size
end

-- The reader after a code, and the number of bytes of the value. The code after one for a text, an
-- array or a map says how many bytes its size has.
local FIXED = {
  [0xCA] = { read_float, 4 },
  [0xCB] = { read_float, 8 },
  [0xD4] = { read_decimal, 1 },
  [0xD5] = { read_decimal, 2 },
  [0xD6] = { read_decimal, 4 },
}
local SIZED = {
  [0xD9] = { read_text, 1 },
  [0xDA] = { read_text, 2 },
  [0xDB] = { read_text, 4 },
  [0xDC] = { read_array, 2 },
  [0xDD] = { read_array, 4 },
  [0xDE] = { read_map, 2 },
  [0xDF] = { read_map, 4 },
}
local CONSTANTS = { [0xC0] = values.null, [0xC2] = false, [0xC3] = true }

function read(data, at)
  local code = data:byte(at) or error("the frame ends early", 0)
  at = at + 1
  if code < 0x80 then return code, at end
  if code < 0x90 then return read_map(data, at, code - 0x80) end
  if code < 0xA0 then return read_array(data, at, code - 0x90) end
  if code < 0xC0 then return read_text(data, at, code - 0xA0) end
  if code >= 0xE0 then return code - 256, at end
  if code >= 0xCC and code < 0xD4 then return read_int(data, at, 2 ^ (code % 4), code >= 0xD0) end
  if CONSTANTS[code] ~= nil then return CONSTANTS[code], at end
  if FIXED[code] then return FIXED[code][1](data, at, FIXED[code][2]) end
  local sized = SIZED[code] or error("unknown MessagePack code " .. code, 0)
  local size, start = read_int(data, at, sized[2])
  return sized[1](data, start, size)
end

--- Returns the value of a frame.
function msgpack.decode(data) return (read(data, 1)) end

return msgpack
