--- Copies of a state: checksums, patches, key tables and layers. No function changes its arguments.
local here = (...):gsub("[^.]*$", "")
local bits = require(here .. "bits")
local values = require(here .. "values")
local state = {}

local null, is_array, copy = values.null, values.is_array, values.copy
local bxor, rshift, tobit = bits.bxor, bits.rshift, bits.tobit

--- Returns the lower 32 bits of a product. The factor is positive. A number has only 53 bits, so it
--- multiplies halves.
local function multiply(a, factor)
  local low = a % 65536
  return tobit(low * factor + (a - low) / 65536 * factor % 65536 * 65536)
end

local function mix(a, b)
  local h = tobit(multiply(a, 0x9e3779b1) + b)
  h = multiply(bxor(h, rshift(h, 16)), 0x85ebca6b)
  h = multiply(bxor(h, rshift(h, 13)), 0xc2b2ae35)
  return bxor(h, rshift(h, 16))
end

local function hash_text(text)
  local h = tobit(0x811c9dc5)
  for index = 1, #text do
    h = multiply(bxor(h, text:byte(index)), 0x01000193)
  end
  return mix(mix(4, 0), h)
end

local MOST_TEXTS = 65536

--- Returns a function that returns the checksum of a value. It remembers those of texts, and those
--- of containers, which must not change.
function state.checker()
  local containers, texts, known = setmetatable({}, { __mode = "k" }), {}, 0

  local function hash(value)
    local kind = type(value)
    if kind == "number" then
      local high, low = values.halves(value)
      return mix(mix(3, high), low)
    elseif kind == "string" then
      if not texts[value] then
        if known == MOST_TEXTS then
          texts, known = {}, 0
        end
        texts[value], known = hash_text(value), known + 1
      end
      return texts[value]
    elseif kind == "table" then
      if not containers[value] then
        local sum, array = 0, is_array(value)
        for key, item in pairs(value) do
          sum = tobit(sum + mix(array and key - 1 or hash(key), hash(item)))
        end
        containers[value] = mix(array and 5 or 6, sum)
      end
      return containers[value]
    end
    return kind == "boolean" and mix(2, value and 1 or 0) or mix(1, 0)
  end

  return function(value) return hash(value) % 2 ^ 32 end
end

--- Ends a patch that cannot be applied (R14).
local function check(fits, why)
  if not fits then error("cannot be applied: " .. why, 0) end
end

--- Returns an operation of a JSON Patch (R12) as a change (R32).
local function change_of(op)
  local keys = {}
  for key in op.path:gmatch("/([^/]*)") do
    keys[#keys + 1] = key:gsub("~1", "/"):gsub("~0", "~")
  end
  local change = op.op == "remove" and null or values.array({ op.value })
  for depth = #keys, 1, -1 do
    local inserts = op.op == "add" and depth == #keys
    change = inserts and values.array({ {}, values.array({ keys[depth], 0, change }) })
      or { [keys[depth]] = change }
  end
  return change
end

local function key_of(key, keys)
  if type(key) == "string" then return key end
  check(keys[key + 1], "an index is not in the key table")
  return keys[key + 1]
end

--- Returns a value with keys in the place of indexes of the key table (R31).
local function resolved(value, keys)
  if type(value) ~= "table" then return value end
  local result, array = setmetatable({}, getmetatable(value)), is_array(value)
  for key, item in pairs(value) do
    result[array and key or key_of(key, keys)] = resolved(item, keys)
  end
  return result
end

--- Returns a map of changes: a table of R32 written out.
local function written_out(change)
  local map, head = {}, change[1]
  local width, at = #head + 1, 2
  while at + width <= #change + 1 do
    local row = {}
    for column, key in ipairs(head) do
      row[key] = change[at + column]
    end
    map[change[at]], at = row, at + width
  end
  for key, item in pairs(change[at] or {}) do
    map[key] = item
  end
  return map
end

--- Returns a value after a change (R32). Copies the containers that change. Changes that do not fit
--- and are not found here make another checksum.
local function changed(value, change, keys)
  if type(change) ~= "table" then return change end
  local splices = {}
  if is_array(change) then
    if #change == 1 then return resolved(change[1], keys) end
    if #change == 2 then
      change, splices = change[1], change[2]
    end
    if is_array(change) then change = written_out(change) end
  end
  check(type(value) == "table", "a change of keys for a value without keys")
  local result, array = copy(value), is_array(value)
  for name, item in pairs(change) do
    local key = array and tonumber(name) + 1 or key_of(name, keys)
    check(value[key] ~= nil or not array and item ~= null, "no such key or element")
    if item ~= null then
      result[key] = changed(value[key], item, keys)
    elseif array then
      result = values.splice(result, key - 1, 1, {})
    else
      result[key] = nil
    end
  end
  for place = 1, #splices, 3 do
    local at, removed, items = splices[place], splices[place + 1], splices[place + 2]
    if array then
      check(at + removed <= #result, "a splice beyond the end")
      result = values.splice(result, tonumber(at), removed, resolved(items, keys))
    else
      result[at] = items[1]
    end
  end
  return result
end

local NOTHING = { keys = {} }

--- Returns the base or a layer after `frame`: {value, keys}. Without `before`, it is a whole state.
--- Raises an error if the frame cannot be applied, or if the checksum differs.
function state.part_after(frame, before, checksum)
  local value, keys = (before or NOTHING).value, (before or NOTHING).keys
  if frame.keys then -- R31
    local from = frame.keys[1]
    check(from <= #keys, "the key table starts beyond the known one")
    keys = values.splice(keys, from, #keys - from, values.splice(frame.keys, 0, 1, {}))
  end
  if frame.state ~= nil then value = resolved(frame.state, keys) end
  check(value ~= nil or frame.change, "no state before the patch")
  for _, op in ipairs(frame.ops or {}) do
    value = changed(value, change_of(op), keys)
  end
  if frame.change ~= nil then value = changed(value, frame.change, keys) end
  check(checksum(value) == frame.checksum, "the checksum differs")
  return { value = value, keys = keys }
end

--- Returns the changes of the layers in a frame by name (R26): null for one that is removed.
--- `names`: the names that numbers stand for in MessagePack, to which it adds.
local function layers_of(frame, names)
  if not is_array(frame.layers) then return frame.layers or {} end
  local layers = {}
  for _, items in ipairs(frame.layers) do
    local number, at = items[1], 2
    if type(items[2]) == "string" then
      names[number], at = items[2], 3
    end
    check(names[number], "a number without the name of its layer")
    local layer = { checksum = items[at], keys = items[at + 1], change = items[at + 2] }
    layers[names[number]] = items[at] and values.without_nulls(layer) or null
  end
  return layers
end

--- Returns base and layer as one value (R27).
local function merged(base, layer)
  if base == nil then return layer end
  if type(base) ~= "table" or type(layer) ~= "table" or is_array(base) or is_array(layer) then
    return base
  end
  local result = copy(base)
  for key, value in pairs(layer) do
    result[key] = merged(base[key], value)
  end
  return result
end

--- The copy of a room's state that no frame has changed yet.
state.EMPTY = { layers = {}, names = {} }

--- Returns the copy of a room's state after a frame with its layers: {base, layers, names, shown}.
--- Raises an error if anything in it cannot be applied (R14).
function state.after(frame, before, checksum)
  local base = frame
  if frame.members then -- A whole state, also null.
    base = { state = frame.state, keys = frame.keys, checksum = frame.checksum }
    if base.state == nil then base.state = null end
    before = state.EMPTY
  end
  local result = { layers = copy(before.layers), names = copy(before.names) }
  result.base = state.part_after(base, before.base, checksum)
  for name, layer in pairs(layers_of(frame, result.names)) do
    local is_gone = layer == null
    result.layers[name] = not is_gone and state.part_after(layer, before.layers[name], checksum)
      or nil
  end
  result.shown = result.base.value
  for _, layer in pairs(result.layers) do
    result.shown = merged(result.shown, layer.value)
  end
  return result
end

return state
