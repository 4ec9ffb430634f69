--- The two codecs of the protocol: messages as JSON texts, and as arrays in MessagePack (R28).
local here = (...):gsub("[^.]*$", "")
local json = require(here .. "json")
local msgpack = require(here .. "msgpack")
local values = require(here .. "values")
local null, without_nulls = values.null, values.without_nulls
local wire = {}

-- Numbers, names and fields. A `:` stands for the room of the last number 29 (R29).
local MESSAGES = [[
0 hello project_id start features
1 join request_id room_type options rejoin create watch
2 leave request_id room_id
3 message room_id type data ref settled
4 state.resync room_id reason
5 ping at
6 token token
7 move
8 goodbye
9 rooms request_id room_type query watch
10 rooms.end request_id
11 find request_id wanted
16 welcome session_id resume_token resumed resume_ttl_seconds heartbeat_seconds node_id server_time limits
17 joined request_id room_id member_id code
18 token within_seconds
19 state.snapshot : epoch seq checksum keys state members layers
20 state.resync : epoch seq checksum keys state members layers
21 state.patch : epoch seq checksum keys change layers
22 event : name data
23 member : member_id sub connected spectator
24 reply : ref data
25 ack : ref
26 error code message retryable request_id room_id ref match
27 move in_ms url
28 pong at server_time
29 room room_id
30 moved
32 rooms request_id rooms set gone at
33 found request_id room_type key create
34 spectators : count
35 left room_id reason code message match
]]

local function words(text)
  local list = {}
  for word in text:gmatch("%S+") do
    list[#list + 1] = word
  end
  return list
end

--- The messages by number: {t, fields}; and the numbers of a client's messages by `t`.
wire.BY_NUMBER, wire.NUMBERS = {}, {}
for number, t, fields in MESSAGES:gmatch("(%d+) (%S+) ?([^\n]*)\n") do
  wire.BY_NUMBER[tonumber(number)] = { t = t, fields = words(fields) }
  if tonumber(number) < 16 then wire.NUMBERS[t] = tonumber(number) end
end

--- The fields of the arrays that stand for objects.
wire.LISTED = words("room_id member_id epoch seq settled")
wire.RESUME = words("session_id resume_token rooms")
wire.WANTED = words("room_type query options")
wire.ASK_REASONS = words("sequence checksum")
local REASONS = words("left session_ended kicked closed replaced")

--- Returns the object of an array of these fields.
local function object(fields, items)
  local result = {}
  for index, name in ipairs(fields) do
    result[name] = items[index]
  end
  return without_nulls(result)
end

--- Returns the array of these fields of an object. Fields that are absent at the end are left out.
local function array_of(fields, from)
  local items, last = values.array(), 0
  for index, name in ipairs(fields) do
    if from[name] ~= nil then last = index end
  end
  for index = 1, last do
    items[index] = from[fields[index]]
    if items[index] == nil then items[index] = null end
  end
  return items
end

local function reader(text)
  local fields = words(text)
  return function(items) return object(fields, items) end
end

local function list_reader(text)
  local read = reader(text)
  return function(list)
    local result = values.array()
    for index, items in ipairs(list) do
      result[index] = read(items)
    end
    return result
  end
end

local ROW = "room_id players max_players reserved created_at data spectators"
local LISTS = { members = "member_id sub connected spectator", rooms = ROW, set = ROW }
-- How to read the fields that MessagePack shortens.
local READ = {
  limits = reader("max_message_bytes messages_per_second message_burst max_rooms"),
  match = reader("room_id options"),
  reason = function(index) return REASONS[index + 1] end,
}

for name, fields in pairs(LISTS) do
  READ[name] = list_reader(fields)
end

--- Returns a codec of one connection. `encode` returns the frame of a message; `decode` returns the
--- message of a frame, in which null is absent.
function wire.json()
  local codec = { subprotocol = "roomful.v1.json", encode = json.encode }

  function codec.decode(text)
    local message = json.decode(text)
    for name in pairs(LISTS) do
      for _, row in ipairs(message[name] or {}) do
        without_nulls(row)
      end
    end
    return without_nulls(message)
  end

  return codec
end

--- Returns the fields of a client's message as MessagePack has them.
local function shortened(message)
  local fields, resume = values.copy(message), message.resume
  if resume then
    fields.start = array_of(wire.RESUME, resume)
    fields.start[3] = values.array()
    for index, room in ipairs(resume.rooms) do
      fields.start[3][index] = array_of(wire.LISTED, room)
    end
  elseif message.t == "hello" then
    fields.start = message.token
  elseif message.t == "find" then
    fields.wanted = message.code or array_of(wire.WANTED, message.room)
  elseif message.t == "state.resync" then
    fields.reason = message.reason == "sequence" and 0 or 1
  end
  return fields
end

--- As wire.json. A decoded frame has `keys` and `change` in the place of `ops` (R31, R32).
function wire.msgpack()
  local codec = { subprotocol = "roomful.v1.msgpack" }
  local room_id -- From the last number 29.

  function codec.encode(message)
    local number = wire.NUMBERS[message.t]
    local items = array_of(wire.BY_NUMBER[number].fields, shortened(message))
    table.insert(items, 1, number)
    return msgpack.encode(items)
  end

  function codec.decode(frame)
    local items = msgpack.decode(frame)
    local kind = wire.BY_NUMBER[table.remove(items, 1)] or { fields = {} }
    if kind.fields[1] == ":" then table.insert(items, 1, room_id or null) end
    local message = object(kind.fields, items)
    for name, read in pairs(READ) do
      if message[name] ~= nil then message[name] = read(message[name]) end
    end
    message.t, message.room_id, message[":"] = kind.t, message[":"] or message.room_id, nil
    if message.t == "room" then room_id = message.room_id end
    return message
  end

  return codec
end

return wire
