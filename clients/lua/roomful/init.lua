--- A client of roomful for LÖVE, LuaJIT and Lua 5.1. It needs LuaSocket, which LÖVE has.
--- docs/protocol.md of roomful has the rules of the protocol (R1 to R39).
local here = (...) .. "."
local socket = require("socket")
local Connection = require(here .. "connection")
local http = require(here .. "http")
local Room = require(here .. "room")
local state = require(here .. "state")
local values = require(here .. "values")
local Websocket = require(here .. "websocket")
local wire = require(here .. "wire")

local roomful = { null = values.null, array = values.array }

-- All times are in seconds. `update` spends so much time with messages; the rest waits.
local BUDGET = 0.004
-- A longer time between two calls of `update` is a pause of the game, such as a window that the
-- player moves. Then silence is no sign of a lost connection.
local LONGEST_STEP = 1
local TOKEN_SECONDS = 10
-- Time limit for the second websocket of a move (R33).
local MOVE_SECONDS = 5
-- A connection that has lasted so long after its welcome was a good one (R5).
local GOOD_SECONDS = 5
-- What any server accepts, until the welcome has the real limits.
local LEAST_LIMITS = { max_message_bytes = 256, messages_per_second = 0, message_burst = 0 }

---@class roomful.Client
---@field status "connecting"|"connected"|"reconnecting"|"closed"
---@field problem string? why there is no connection now, for developers
---@field error roomful.Error? why the client is closed
---@field limits table what the server accepts from this client
---@field latency number? the time from a ping to its answer
---@field on_status fun(status: string, problem: string?) prints problems, if the game does not set it
---@field on_error fun(error: roomful.Error, room: roomful.Room?) for errors that no callback gets
local Client = {}
Client.__index = Client

--- Returns random numbers from 0 to 1, other ones in each run. It leaves math.random to the game.
local function generator()
  local address = tonumber(tostring({}):match("%x+$"), 16) or 0
  local seed = (math.floor(socket.gettime() * 1e6) + address) % 2147483646 + 1
  return function()
    seed = seed * 16807 % 2147483647
    return seed / 2147483647
  end
end

local function print_problem(problem) io.stderr:write("roomful: ", tostring(problem), "\n") end

---@class roomful.Options
---@field project_id string? required with `get_token`
---@field get_token fun(answer: fun(token: string?, problem: string?), client: roomful.Client)?
---@field dev string? the name of a player, for whom the server of `npm start` has a token
---@field codec "msgpack"|"json"|nil
---@field move_hosts string[]? other hosts to which the server may move the session
---@field ca_file string? certificates of authorities, for wss:

--- Returns a client, which connects in `update`. `url` begins with ws: or wss:.
--- (For tests, the options also have open_socket, time and random.)
---@param url string
---@param options roomful.Options
---@return roomful.Client
function roomful.connect(url, options)
  options = options or {}
  local self = setmetatable({ status = "connecting", limits = LEAST_LIMITS }, Client)
  self._url, self._address, self._options = url, Websocket.parse(url), options
  self._hosts = { [self._address.host] = true }
  for _, host in ipairs(options.move_hosts or {}) do
    self._hosts[host:lower()] = true
  end
  self._get_token = options.get_token or options.dev and self._get_dev_token
  if not self._get_token then error("connect needs the option get_token or dev", 2) end
  self._codec = wire[options.codec or "msgpack"] or error("codec: use msgpack or json", 2)
  self._project_id, self._encoder = options.project_id, self._codec()
  self._open_socket = options.open_socket or Websocket.open
  self._time, self._random = options.time or socket.gettime, options.random or generator()
  self._tls = { ca_file = options.ca_file }
  self._rooms, self._requests, self._last_request, self._posts = {}, {}, 0, {}
  self._checksum, self._matches = state.checker(), {} -- The last match by queue.
  self._now, self._last_time, self._tries = 0, self._time(), 0
  self:_schedule(url, 0)
  self.on_error = print_problem
  function self.on_status(status, problem)
    if problem then print_problem(status .. ": " .. problem) end
  end
  return self
end

--- Fetches a token from the server of `npm start`.
function Client._get_dev_token(answer, self)
  local url = self._url:gsub("^ws", "http"):gsub("/*$", "") .. "/dev/token"
  self:post(url, { sub = self._options.dev }, function(body, problem)
    self._project_id = body and body.project_id
    answer(body and body.token, problem and "`dev` needs a server of `npm start`: " .. problem)
  end)
end

--- Posts a value as JSON, without blocking. `callback(value, problem)` gets the JSON of the answer.
---@param callback fun(value: any, problem: string?)
---@param headers table<string, string>?
function Client:post(url, value, callback, headers)
  local poll = http.post(url, value, { headers = headers, tls = self._tls })
  table.insert(self._posts, { poll = poll, callback = callback })
end

--- Joins a room. `options`: its key, and what its type wants. `how`: {watch, create}: only watch
--- it; `create = false`: only join a room that exists.
---@return roomful.Room
function Client:join(room_type, options, how)
  local room, named = self:_add_room(), values.copy(options or {})
  if named.key == nil then named.key = "default" end
  local join = { t = "join", room_type = room_type, options = named }
  join.watch, join.create = how and how.watch, how and how.create
  room:_start(join)
  return room
end

function Client:_add_room()
  if self.status == "closed" then error("the client is closed: connect again", 3) end
  local room = Room.new(self)
  table.insert(self._rooms, room)
  return room
end

function Client:_remove(room)
  for index, other in ipairs(self._rooms) do
    if other == room then return table.remove(self._rooms, index) end
  end
end

--- Sends a message if the session is connected. Returns whether it is.
function Client:_send(message) return self:_send_frame(self._encoder.encode(message)) end

function Client:_send_frame(frame)
  local connection = self._connection
  if not connection or not connection.is_ready then return false end
  connection.socket:send(frame)
  self._allowed = self._allowed - 1
  return true
end

--- Sends a request now, and again after each welcome until it is forgotten (R10).
--- `take(message)` gets its answers. Returns the id.
function Client:_request(message, take)
  local id, request = self._last_request + 1, values.copy(message)
  self._last_request, request.request_id = id, id
  self._requests[id] = { message = request, take = take }
  self:_send(request)
  return id
end

--- Ends a request. Returns true if there was one.
function Client:_forget(id)
  local known = self._requests[id] ~= nil
  self._requests[id] = nil
  return known
end

--- Returns how many messages the rate permits now (R16).
function Client:_budget()
  local earned = (self._now - self._paid_at) * self.limits.messages_per_second
  self._allowed = math.min(self._allowed + earned, self.limits.message_burst)
  self._paid_at = self._now
  return self._allowed
end

function Client:_set_status(status, problem)
  local is_new = status ~= self.status or problem ~= self.problem
  self.status, self.problem = status, problem
  if is_new then self.on_status(status, problem) end
end

-- Connections. An attempt opens a socket: {url, at, tries, moves, connection}.

--- Plans an attempt after a number of failures (R5). `moves`: while the connection continues.
function Client:_schedule(url, tries, moves)
  self:_drop_attempt()
  local wait = tries > 0 and self._random() * math.min(10, 0.125 * 2 ^ tries) or 0
  self._attempt = { url = url, at = self._now + wait, tries = tries, moves = moves }
end

function Client:_drop_attempt()
  local attempt = self._attempt
  self._attempt = nil
  if attempt and attempt.connection then attempt.connection:close() end
end

--- Continues an attempt: first the token of a new session, then the socket, then `hello`.
function Client:_advance(attempt, elapsed)
  if self._now < attempt.at then return end
  if not self._session and not self._token then return self:_ask_token() end
  if not attempt.connection then
    local codec, how = self._codec(), { random = self._random, tls = self._tls }
    local opened = self._open_socket(attempt.url, codec.subprotocol, how)
    attempt.connection = Connection.new(opened, codec, attempt.moves and self._connection)
  end
  local connection = attempt.connection
  connection:poll(self._now, elapsed)
  if connection.socket.stage == "open" then
    if attempt.moves and not self._connection.has_moved then return self:_leave() end
    self:_hello(attempt)
  elseif connection:has_ended() then
    self:_failed(attempt, connection:problem())
  elseif attempt.moves and self._now >= attempt.at + MOVE_SECONDS then
    connection:close("the second connection does not open")
  end
end

function Client:_failed(attempt, problem)
  local leaves = attempt.moves and self._connection.leaves
  if leaves or attempt.moves and attempt.url ~= self._url then
    self:_drop_attempt() -- R33
    if leaves then self._connection:close(problem) end -- R34
    return
  end
  self:_schedule(self._url, attempt.tries + 1, attempt.moves)
  if not attempt.moves then self:_set_status(self.status, problem) end
end

--- Ends the first connection of a move: the server answers with its last message (R34).
function Client:_leave()
  local connection = self._connection
  if connection.leaves then return end
  self:_send({ t = "move" })
  connection.leaves, connection.is_ready = true, false
end

--- Starts or continues the session on a socket that is open (R2, R18, R34).
function Client:_hello(attempt)
  local hello = { t = "hello", project_id = self._project_id, features = { "layers" } }
  if self._session then
    hello.resume = values.copy(self._session)
    hello.resume.rooms = values.array()
  else
    hello.token, self._token = self._token, nil
  end
  for _, room in ipairs(self._rooms) do
    if hello.resume then table.insert(hello.resume.rooms, room:_listed()) end
  end
  if attempt.moves then
    if self._previous then self._previous:close() end
    self._previous = self._connection
  end
  self._connection, self._attempt, self._tries = attempt.connection, nil, attempt.tries
  self._connection:send(hello)
end

--- Asks the game for a token, which arrives as `_token`.
function Client:_ask_token()
  if self._asked then return end
  local asked = { stop_at = self._now + TOKEN_SECONDS }
  self._asked = asked
  self._get_token(function(token, problem)
    if self._asked ~= asked then return end -- Too late.
    self._asked = nil
    if type(token) ~= "string" then return self:_no_token(problem or "the answer is no text") end
    self._token = token
    self:_send_token()
  end, self)
end

function Client:_no_token(problem)
  problem = "no token: " .. tostring(problem)
  if not self._session and self._attempt then return self:_failed(self._attempt, problem) end
  self.on_error(Room.make_error({ code = "no_token", message = problem })) -- The server asks again.
end

function Client:_send_token()
  if self._token and self:_send({ t = "token", token = self._token }) then self._token = nil end
end

--- A connection has ended (R4, R34).
function Client:_ended(connection)
  if connection == self._previous then
    self._previous = nil
    return
  end
  local code, reason = connection.socket.code, connection.socket.reason
  local moves = connection.leaves or connection.previous -- Then the code does not matter.
  if connection.previous then
    connection.previous:close()
    self._previous = nil
  end
  if code >= 4000 and code < 4100 and not moves then
    return self:_end(Room.make_error({ code = tostring(code), message = reason }))
  end
  self._connection = nil
  local is_good = connection.welcomed_at and self._now - connection.welcomed_at >= GOOD_SECONDS
  self:_schedule(self._url, is_good and 1 or self._tries + 1)
  if code >= 4300 and code < 4400 and not moves then
    self._session, self._token = nil, nil
    for _, room in ipairs(values.copy(self._rooms)) do
      if room.status == "joined" then room:_lose(Room.make_error({ code = "session_ended" })) end
    end
  end
  if self.status == "closed" then return end -- By a callback.
  local is_new = self.status == "connecting"
  self:_set_status(is_new and "connecting" or "reconnecting", connection:problem())
end

local TAKE = {}

--- Takes a message of the server.
function Client:_take(connection, message)
  local t = message.t
  if TAKE[t] then return TAKE[t](self, message, connection) end
  local request = self._requests[message.request_id]
  if request then return request.take(message) end
  if message.request_id then return end
  for _, room in ipairs(self._rooms) do
    if room.room_id == message.room_id then return room:_take(message) end
  end
  if t == "error" then self.on_error(Room.make_error(message)) end
end

--- Sends what a new connection needs (R10, R22), before any other message is taken.
function TAKE.welcome(self, welcome, connection)
  self._session = { session_id = welcome.session_id, resume_token = welcome.resume_token }
  self.limits = welcome.limits
  if not welcome.resumed then
    self._allowed, self._paid_at = welcome.limits.message_burst, self._now
  end
  connection:welcome(self._now, welcome.heartbeat_seconds)
  self:_ping(connection)
  self:_send_token()
  for _, room in ipairs(self._rooms) do
    room:_send_kept()
  end
  for id = 1, self._last_request do
    if self._requests[id] then self:_send(self._requests[id].message) end
  end
  self:_set_status("connected")
end

function TAKE.pong(self, message) self.latency = self._now - message.at end

--- The server asks for a fresh token. It answers all questions that arrive until then (R20).
function TAKE.token(self) self:_ask_token() end

function TAKE.moved(_, _, connection) connection.has_moved = true end

--- Plans to resume on a second connection. The first one stays open until then (R33).
function TAKE.move(self, message)
  if self._attempt then return end
  local url = message.url or self._url
  local could, address = pcall(Websocket.parse, url)
  if not could or not self._hosts[address.host] then return end
  if self._address.tls and not address.tls then return end
  self:_schedule(url, 0, true)
  self._attempt.at = self._now + message.in_ms / 1000
end

function Client:_ping(connection)
  if connection == self._connection then self:_send({ t = "ping", at = self._now }) end
end

--- Takes the messages of a connection, as far as the time of this update goes.
function Client:_serve(connection, elapsed)
  if not connection then return end
  if connection:poll(self._now, elapsed) then self:_ping(connection) end
  while self._time() < self._stop_at do
    local message = connection:receive()
    if not message then break end
    self:_take(connection, message)
  end
  if connection:has_ended() and self.status ~= "closed" then self:_ended(connection) end
end

function Client:_poll_posts()
  for index = #self._posts, 1, -1 do
    local post = self._posts[index]
    local done, value, problem = post.poll()
    if done then
      table.remove(self._posts, index)
      post.callback(value, problem)
    end
  end
end

--- Connects, reads, writes, and calls the callbacks. Call it in each frame of the game. It does not
--- block, except while DNS looks up a host name.
function Client:update()
  local time = self._time()
  local elapsed = math.max(0, time - self._last_time)
  self._now, self._last_time, self._stop_at = self._now + elapsed, time, time + BUDGET
  elapsed = math.min(elapsed, LONGEST_STEP)
  self:_poll_posts()
  if self._farewell then self._farewell:poll(self._now, elapsed) end
  self:_serve(self._previous, elapsed)
  self:_serve(self._connection, elapsed)
  if self._asked and self._now >= self._asked.stop_at then
    self._asked = nil
    self:_no_token(("get_token has not answered for %d seconds"):format(TOKEN_SECONDS))
  end
  if self._attempt then self:_advance(self._attempt, elapsed) end
end

--- Ends the session: its members leave immediately. Then end the program, or call `update` until the
--- server has closed the connection.
function Client:close()
  if self.status == "closed" then return end
  if self:_send({ t = "goodbye" }) then
    self._farewell, self._connection = self._connection, nil
  end
  self:_end(Room.make_error({ code = "closed", message = "the game has closed the client" }))
end

function Client:_end(why)
  self:_drop_attempt()
  for _, connection in pairs({ self._connection, self._previous }) do
    connection:close()
  end
  self._connection, self._previous, self._asked, self.error = nil, nil, nil, why
  self:_set_status("closed", why.code ~= "closed" and tostring(why) or nil)
  for _, room in ipairs(values.copy(self._rooms)) do
    room:_lose(why)
  end
  for id, request in pairs(values.copy(self._requests)) do
    self:_forget(id)
    request.take({ t = "error", code = why.code, message = why.message })
  end
end

require(here .. "find")(Client)

return roomful
