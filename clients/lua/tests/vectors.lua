--- Runs docs/protocol-vectors.json against the codecs, the checksum and the patches.
local json = require("roomful.json")
local state = require("roomful.state")
local support = require("tests.support")
local values = require("roomful.values")
local wire = require("roomful.wire")

local equal, from_hex, without_nulls = support.equal, support.from_hex, support.without_nulls
local VECTORS = support.read_json("protocol-vectors.json")
local checksum = state.checker()

local function room_codec()
  local codec = wire.msgpack()
  codec.decode(from_hex(VECTORS.address.msgpack))
  return codec
end

--- Returns the layers of a state by name.
local function layers_of(states)
  local result = {}
  for name, layer in pairs(states.layers) do
    result[name] = layer.value
  end
  return result
end

local function stream_checker(read)
  local states = nil
  return function(vector)
    local frame = read(vector)
    states = state.after(frame, states, checksum)
    equal(states.base.value, vector.state, "the state")
    equal(layers_of(states), vector.layers or {}, "the layers")
    for _, name in ipairs({ "t", "room_id", "epoch", "seq", "checksum", "members" }) do
      equal(frame[name], without_nulls(vector.json)[name], name)
    end
  end
end

local function read_server_message(vector)
  if vector.from == "client" then return end
  local message = room_codec().decode(from_hex(vector.msgpack))
  if vector.json == values.null then -- The address of a room, or a message of a later version.
    message.room_id, message.t = nil, nil
    return equal(message, {})
  end
  equal(message, without_nulls(vector.json))
  equal(wire.json().decode(json.encode(vector.json)), without_nulls(vector.json))
end

local codec = room_codec()
local CHECKS = {
  { "checksums", function(vector) equal(checksum(vector.value), vector.checksum) end },
  {
    "messages",
    function(vector)
      if vector.from ~= "client" then return end
      local expected = support.client_message(from_hex(vector.msgpack))
      equal(expected, without_nulls(vector.json))
      equal(support.client_message(wire.msgpack().encode(without_nulls(vector.json))), expected)
      equal(json.decode(wire.json().encode(vector.json)), vector.json)
    end,
  },
  { "messages", read_server_message },
  { "frames", read_server_message },
  {
    "stream",
    stream_checker(function(vector) return wire.json().decode(json.encode(vector.json)) end),
  },
  {
    "stream",
    stream_checker(function(vector) return codec.decode(from_hex(vector.msgpack)) end),
  },
  {
    "patches",
    function(vector)
      local frame = wire.msgpack().decode(from_hex(vector.msgpack))
      local before = { value = vector.state, keys = vector.keys }
      local could, after = pcall(state.part_after, frame, before, checksum)
      equal(could, vector.applied, "applied")
      equal(before, { value = vector.state, keys = vector.keys })
      if not could then return end
      equal(after.value, vector.state_after)
      equal(values.array(after.keys), vector.keys_after)
    end,
  },
}

--- Returns the number of failures.
return function()
  local tests = {}
  for _, check in ipairs(CHECKS) do
    for index, vector in ipairs(VECTORS[check[1]]) do
      local name = ("%s %d %s"):format(check[1], index, vector.about or "")
      table.insert(tests, { name, function() check[2](vector) end })
    end
  end
  return support.run("vectors", tests)
end
