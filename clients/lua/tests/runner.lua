--- Runs steps of docs/protocol-scenarios.json against the client. The runner is the server and the
--- game: it has sockets in memory and a clock that it advances.
local json = require("roomful.json")
local roomful = require("roomful")
local support = require("tests.support")
local values = require("roomful.values")

local equal = support.equal
local FILE = support.read_json("protocol-scenarios.json")
local STATUS = { connected = "online", reconnecting = "reconnecting", closed = "ended" }
local STEP = 0.25

--- The client's end of a websocket in memory.
local Socket = {}
Socket.__index = Socket

function Socket:poll() end

function Socket:receive() return table.remove(self.to_client, 1) end

function Socket:send(frame) table.insert(self.sent, frame) end

function Socket:close()
  self.was_closed = true
  if self.stage ~= "closed" then
    self.stage, self.code = "closed", 1006
  end
end

local Runner = { FILE = FILE }
Runner.__index = Runner

function Runner.new(codec)
  local self = { codec = codec, now = 1000, waited = 0, sockets = {}, tokens = 0, token_delay = 0 }
  self.outcomes, self.rooms, self.events, self.lists, self.ends = {}, {}, {}, {}, {}
  self.answers, self.seats = {}, {}
  return setmetatable(self, Runner)
end

--- Advances the clock, and lets the client run.
function Runner:pass_time(seconds)
  local stop_at = self.now + (seconds or 0)
  repeat
    self.now = math.min(stop_at, self.now + STEP)
    for index = #self.answers, 1, -1 do
      if self.now >= self.answers[index].at then table.remove(self.answers, index).answer() end
    end
    for _ = 1, 3 do
      if self.client then self.client:update() end
    end
  until self.now >= stop_at
end

--- Advances the clock until the condition holds, for at most 15 seconds.
function Runner:wait_until(condition)
  local stop_at = self.now + 15
  while not condition() and self.now < stop_at do
    self:pass_time(STEP)
  end
end

function Runner:connect(address)
  local config = FILE.client
  self.client = roomful.connect(address or config.address, {
    project_id = config.project_id,
    codec = self.codec,
    move_hosts = config.hosts,
    time = function() return self.now end,
    random = function() return 0.5 end,
    get_token = function(answer)
      self.tokens = self.tokens + 1
      local token = "token-" .. self.tokens
      table.insert(self.answers, {
        at = self.now + self.token_delay,
        answer = function() answer(token) end,
      })
    end,
    open_socket = function(url)
      local socket = { url = url, stage = "opening", sent = {}, to_client = {} }
      table.insert(self.sockets, setmetatable(socket, Socket))
      return socket
    end,
  })
  self.client.on_error, self.client.on_status = function() end, function() end
end

--- Returns a callback that notes an outcome.
function Runner:outcome(name)
  self.outcomes[name] = "pending"
  return function(result, problem)
    if problem and problem.code == "seat_lost" then
      self.outcomes[name] = "unknown"
    elseif problem then
      self.outcomes[name] = { error = problem.code }
    else
      self.outcomes[name] = type(result) == "table" and { reply = result } or "done"
    end
  end
end

function Runner:follow(room, name)
  local done = self:outcome(name)
  function room.on_joined()
    self.rooms[room.room_id], self.seats[room.room_id] = room, "joined"
    self.events[room.room_id] = self.events[room.room_id] or values.array()
    done()
  end
  function room.on_left(problem)
    if room.room_id then self.seats[room.room_id] = problem.code end
    if self.outcomes[name] == "pending" then done(nil, problem) end
  end
  function room.on_event(event, data)
    local item = values.array({ event, data == nil and values.null or data })
    table.insert(self.events[room.room_id], item)
  end
end

--- Returns a callback that notes lists of rooms.
function Runner:list(name)
  local done = self:outcome(name)
  self.lists[name] = values.array()
  return function(rooms, problem)
    done(nil, problem)
    local ids = values.array()
    for index, row in ipairs(rooms or {}) do
      ids[index] = row.room_id
    end
    if rooms then table.insert(self.lists[name], ids) end
  end
end

local CALLS = {}

function CALLS.token_delay(self, step) self.token_delay = step.ms / 1000 end

function CALLS.connect(self, step) self:connect(step.address) end

function CALLS.goodbye(self) self.client:close() end

function CALLS.join(self, step, name)
  local how = { watch = step.watch }
  self:follow(self.client:join(step.room_type, step.options, how), name)
end

function CALLS.join_by_code(self, step, name) self:follow(self.client:join_by_code(step.code), name) end

function CALLS.join_or_create(self, step, name)
  self:follow(self.client:join_or_create(step.room_type, step.options, step.query), name)
end

function CALLS.list(self, step, name) self.client:rooms(step.room_type, step.query, self:list(name)) end

function CALLS.watch(self, step, name)
  self.ends[name] = self.client:watch_rooms(step.room_type, step.query, self:list(name))
end

function CALLS.end_watch(self, _, name) self.ends[name]() end

function CALLS.leave(self, step, name)
  local done = self:outcome(name)
  self.rooms[step.room_id]:leave(function(problem) done(nil, problem) end)
end

function CALLS.send(self, step, name)
  local room = self.rooms[step.room_id]
  if step.ref then
    room:send(step.type, step.data, self:outcome(name))
  else
    room:send_unreliable(step.type, step.data)
  end
end

local DO = {}

DO["do"] = function(self, step)
  for _ = 1, step.times or 1 do
    CALLS[step["do"]](self, step, step.as or step["do"])
  end
end

function DO.open(self, step)
  local before = self.now
  self:wait_until(function() return self.sockets[step.open] end)
  self.waited = self.waited + self.now - before
  local socket = assert(self.sockets[step.open], "the client opens no socket")
  if step.url then equal(socket.url, step.url, "the address") end
  if step.refuse then
    socket.stage, socket.code = "closed", 1006
  else
    socket.stage = "open"
  end
end

local function equal_fields(message, wanted)
  if wanted == values.null or message == nil then return equal(message or values.null, wanted) end
  for name, value in pairs(wanted) do
    if name == "resume" then
      equal_fields(message.resume, value)
    else
      equal(message[name], value, name .. " of " .. json.encode(message))
    end
  end
end

function DO.client(self, step, socket)
  local wanted, found = step.client, nil
  local is_ping = wanted ~= values.null and wanted.t == "ping"
  local function find()
    for index, frame in ipairs(socket.sent) do
      if (support.client_message(frame).t == "ping") == is_ping then found = found or index end
    end
    return found
  end
  if wanted ~= values.null then self:wait_until(find) end
  local message = find() and support.client_message(table.remove(socket.sent, found))
  equal_fields(message, wanted)
end

function DO.at_most(_, step, socket)
  local count = 0
  for _, frame in ipairs(socket.sent) do
    if support.client_message(frame).t ~= "ping" then count = count + 1 end
  end
  assert(count <= step.at_most, count .. " messages")
  socket.sent = {}
end

function DO.serve(self, step, socket)
  if self.codec == "json" then return table.insert(socket.to_client, json.encode(step.server)) end
  for _, frame in ipairs(step.msgpack) do
    table.insert(socket.to_client, support.from_hex(frame))
  end
end

function DO.close(_, step, socket)
  socket.stage, socket.code = "closed", step.close
end

function DO.closed(self, step)
  local socket = self.sockets[step.closed]
  self:wait_until(function() return socket.was_closed end)
  assert(socket.was_closed, "the client does not close the socket")
end

function DO.wait_ms(self, step) self:pass_time(step.wait_ms / 1000) end

--- Returns what the game sees.
local SEES = {}

function SEES.state(_, room) return room.state end

function SEES.members(_, room)
  local members = values.array()
  for _, member in pairs(room.members) do
    table.insert(members, member)
  end
  return members
end

function SEES.events(self, _, room_id)
  local events = self.events[room_id]
  self.events[room_id] = values.array()
  return events
end

function SEES.seat(self, _, room_id) return self.seats[room_id] end

function SEES.role(_, room) return room.spectator and "spectator" or "player" end

function SEES.spectators(_, room) return room.spectators end

function SEES.sockets(self) return #self.sockets end

function SEES.status(self) return STATUS[self.client.status] end

local function by_member_id(a, b) return a.member_id < b.member_id end

function DO.expect(self, step)
  local expected = step.expect
  local room_id = expected.room_id or "arena:lobby"
  for name, value in pairs(expected) do
    if name == "waited_ms" then
      local waited = self.waited * 1000
      assert(waited >= value[1] and waited <= value[2], "waited " .. waited)
      self.waited = 0
    elseif name == "outcomes" or name == "lists" then
      for of, wanted in pairs(value) do
        equal(self[name][of], wanted, name .. " " .. of)
      end
    elseif name ~= "room_id" then
      local actual = SEES[name](self, self.rooms[room_id], room_id)
      if name == "members" then
        value = support.without_nulls({ members = value }).members
        table.sort(actual, by_member_id)
        table.sort(value, by_member_id)
      end
      equal(actual, value, name)
    end
  end
end

local KINDS = { "do", "open", "client", "close", "closed", "wait_ms", "expect", "at_most" }

--- Runs steps one after the other.
function Runner:run(steps)
  for number, step in ipairs(steps) do
    local kind = (step.msgpack or step.server) and "serve"
    for _, name in ipairs(KINDS) do
      kind = step[name] ~= nil and name or kind
    end
    local socket = self.sockets[step.on or #self.sockets]
    local could, problem = pcall(DO[kind], self, step, socket)
    if not could then error(("step %d, %s: %s"):format(number, kind, problem), 0) end
    self:pass_time()
  end
end

--- Sends a message to the client on its latest socket, in JSON.
function Runner:serve(message)
  table.insert(self.sockets[#self.sockets].to_client, json.encode(message))
end

return Runner
