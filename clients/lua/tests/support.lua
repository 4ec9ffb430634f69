--- What the tests share: files, comparisons, and the server's reading of the client's frames.
local json = require("roomful.json")
local msgpack = require("roomful.msgpack")
local values = require("roomful.values")
local wire = require("roomful.wire")
local support = {}

function support.read_json(name)
  local file = assert(io.open("../../docs/" .. name))
  local text = file:read("*a")
  file:close()
  return json.decode(text)
end

function support.from_hex(text)
  return (text:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

--- Raises an error if two values differ.
function support.equal(actual, expected, what)
  local function differ(a, b)
    if type(a) ~= "table" or type(b) ~= "table" then return a ~= b end
    if values.is_array(a) ~= values.is_array(b) then return true end
    for key in pairs(a) do
      if b[key] == nil then return true end
    end
    for key, item in pairs(b) do
      if differ(a[key], item) then return true end
    end
    return false
  end
  if differ(actual, expected) then
    local text = "%s is %s, not %s"
    error(text:format(what or "it", json.encode(actual), json.encode(expected)), 0)
  end
end

--- Returns an object without its nulls, also those in its rows.
function support.without_nulls(message)
  if type(message) ~= "table" then return message end
  message = values.without_nulls(values.copy(message))
  for _, list in ipairs({ "members", "rooms", "set" }) do
    local rows = message[list] and values.array()
    for index, row in ipairs(message[list] or {}) do
      rows[index] = values.without_nulls(values.copy(row))
    end
    message[list] = rows
  end
  return message
end

--- Runs a list of tests: {name, test}. Prints and returns the number of failures.
function support.run(what, tests)
  local passed, failed = 0, 0
  for _, test in ipairs(tests) do
    local could, problem = xpcall(
      test[2],
      function(problem)
        return type(problem) == "string" and problem or debug.traceback(tostring(problem))
      end
    )
    passed, failed = passed + (could and 1 or 0), failed + (could and 0 or 1)
    if not could then print(("FAILED %s: %s"):format(test[1], problem)) end
  end
  print(("%s: %d passed, %d failed"):format(what, passed, failed))
  return failed
end

local function zip(names, items)
  local result = {}
  for index, name in ipairs(names) do
    result[name] = items[index]
  end
  return values.without_nulls(result)
end

--- Returns the JSON form of a client's frame of either subprotocol.
function support.client_message(frame)
  if frame:sub(1, 1) == "{" then return json.decode(frame) end
  local items = msgpack.decode(frame)
  local kind = wire.BY_NUMBER[table.remove(items, 1)]
  local message = zip(kind.fields, items)
  message.t = kind.t
  local start, find = message.start, message.wanted
  message.start, message.wanted = nil, nil
  if type(start) == "string" then message.token = start end
  if type(find) == "string" then message.code = find end
  if type(start) == "table" then
    message.resume = zip(wire.RESUME, start)
    for index, room in ipairs(message.resume.rooms) do
      message.resume.rooms[index] = zip(wire.LISTED, room)
    end
  end
  if type(find) == "table" then message.room = zip(wire.WANTED, find) end
  if message.t == "state.resync" then message.reason = wire.ASK_REASONS[message.reason + 1] end
  return message
end

return support
