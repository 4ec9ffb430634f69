--- A seat in a room.
local here = (...):gsub("[^.]*$", "")
local json = require(here .. "json")
local states = require(here .. "state")
local values = require(here .. "values")

local function call(callback, ...)
  if callback then callback(...) end
end

---@class roomful.Error
---@field code string an error code, a reason of `left`, a close code as text, or `seat_lost`
---@field message string for developers; after `kicked` and the like, for the player
---@field retryable boolean the same call may succeed later
local Error = {
  __tostring = function(self) return self.code .. (self.message and ": " .. self.message or "") end,
}

---@class roomful.Member
---@field member_id string
---@field sub string? the player's id from the token
---@field connected boolean
---@field spectator boolean?

---@class roomful.Room
---@field status "joining"|"joined"|"left"
---@field room_id string? `type:key`
---@field member_id string? the id of this client in `members`
---@field code string? the code of the room, to share
---@field state any nil until the first state has arrived. Do not change it
---@field members table<string, roomful.Member> by member id
---@field spectator boolean this client watches
---@field spectators number how many members watch
---@field pending number messages of `send` without an outcome
---@field error roomful.Error? why the seat has ended
---@field queue roomful.Room? the seat in the queue, from `find_match`
---@field on_joined fun()? the first state of a seat has arrived
---@field on_change fun(state: any, previous: any)? the state has changed
---@field on_members fun()? `members` or `spectators` have changed
---@field on_event fun(name: string, data: any)?
---@field on_left fun(error: roomful.Error)? the seat has ended. Without it, `on_error` gets the error
local Room = {}
Room.__index = Room

--- Returns an error with the fields of an `error` message.
function Room.make_error(fields)
  local copied = { code = fields.code, message = fields.message, match = fields.match }
  copied.retryable = fields.retryable or false
  return setmetatable(copied, Error)
end

function Room.new(client)
  local self = setmetatable({ _client = client }, Room)
  self:_forget()
  return self
end

function Room:_forget()
  self.status, self.members, self.spectator, self.spectators = "joining", {}, false, 0
  self.state, self.epoch, self.seq = nil, 0, 0
  self._states, self._is_broken = states.EMPTY, false
  -- Kept messages by ref: {frame, callback, reply}. `_first` is the lowest ref that may be kept.
  -- Until the first state: {kind, data, callback}.
  self._kept, self._first, self._last, self.pending = {}, 1, 0, 0
end

--- Sends a request. `take(message)` gets its answers until it ends.
function Room:_request(message, take) self._request_id = self._client:_request(message, take) end

function Room:_end_request()
  if self._request_id then self._client:_forget(self._request_id) end
  self._request_id = nil
end

--- Joins with a `join` message (R8). `refused(error)` replaces the end of the seat.
function Room:_start(join, refused)
  self._join = join
  self:_request(join, function(message)
    if message.t == "joined" then
      self.room_id, self.member_id, self.code = message.room_id, message.member_id, message.code
      return
    end
    self:_end_request()
    if refused then return refused(Room.make_error(message)) end
    self:_lose(Room.make_error(message))
  end)
end

--- Asks which room to join with a `find` message (R36).
function Room:_find(find, found)
  self:_request(find, function(message)
    self:_end_request()
    if message.t == "error" then return self:_lose(Room.make_error(message)) end
    found(message)
  end)
end

--- Returns the entry of this room in a resume (R19), or nil.
function Room:_listed()
  if self.status ~= "joined" then return nil end
  local listed = { room_id = self.room_id, member_id = self.member_id, settled = self:_settled() }
  listed.epoch, listed.seq = self._is_broken and 0 or self.epoch, self._is_broken and 0 or self.seq
  return listed
end

function Room:_send_kept()
  for ref = self._first, self.status == "joined" and self._last or 0 do
    if self._kept[ref] then self._client:_send_frame(self._kept[ref].frame) end
  end
end

function Room:_send_early()
  local early = self._kept
  self._kept, self._last, self.pending = {}, 0, 0
  for _, message in ipairs(early) do
    self:send(message.kind, message.data, message.callback)
  end
end

function Room:_settled()
  while self._first <= self._last and not self._kept[self._first] do
    self._first = self._first + 1
  end
  return self._first - 1
end

--- Returns the frame of a message, or nil and an error (R16).
function Room:_frame(kind, data, ref)
  if self.status == "left" then
    return nil, Room.make_error({ code = "not_in_room", message = "the seat is gone: join again" })
  end
  if data == nil then data = {} end
  local message = { t = "message", room_id = self.room_id, type = kind, data = data, ref = ref }
  message.settled = ref and self:_settled()
  local frame, most = self._client._encoder.encode(message), self._client.limits.max_message_bytes
  if #frame <= most then return frame end
  local problem = ("%d bytes: the limit is %d"):format(#frame, most)
  return nil, Room.make_error({ code = "payload_too_large", message = problem })
end

--- Sends a message that the room applies exactly once and in order, also across lost connections.
--- Without a callback, an error goes to the `on_error` of the client. Raises an error for data that
--- JSON does not have.
---@param callback fun(reply: any, error: roomful.Error?)? gets the outcome
function Room:send(kind, data, callback)
  local ref, message, problem = self._last + 1, { callback = callback }, nil
  if self.status == "joining" then
    if data ~= nil then data = json.decode(json.encode(data)) end -- The game may change its table.
    message.kind, message.data = kind, data
  else
    message.frame, problem = self:_frame(kind, data, ref)
    if problem then return self:_finish(message, problem) end
  end
  self._kept[ref], self._last = message, ref
  self.pending = self.pending + 1
  if message.frame then self._client:_send_frame(message.frame) end
end

--- Sends a message that may be lost, such as a position. Returns false if it was dropped: without
--- a connection or a state, or above the rate of `client.limits`.
function Room:send_unreliable(kind, data)
  local frame, problem = self:_frame(kind, data)
  if problem then self:_finish({}, problem) end
  if problem or self.status ~= "joined" then return false end
  return self._client:_budget() >= 1 and self._client:_send_frame(frame)
end

--- A message has its outcome.
function Room:_finish(message, problem)
  if message.callback then return message.callback(message.reply, problem) end
  if problem and self._client.status ~= "closed" then self._client.on_error(problem, self) end
end

--- A message that is kept has its outcome.
function Room:_settle(ref, problem)
  local message = self._kept[ref]
  if not message then return end
  self._kept[ref], self.pending = nil, self.pending - 1
  self:_finish(message, problem)
end

--- Leaves the room.
---@param callback fun(error: roomful.Error?)? is called when the seat has ended
function Room:leave(callback)
  self._leaves, self._on_leave = true, callback
  if self.status == "left" then
    self:_end_leave()
  elseif self.queue then
    self.queue:leave(function(problem)
      if problem then self:_end_leave(problem) end
    end)
  elseif self.status == "joined" then
    self:_request({ t = "leave", room_id = self.room_id }, function(message)
      self:_end_request()
      self:_end_leave(Room.make_error(message))
    end)
  end -- While it joins, the leave follows the first state.
end

function Room:_end_leave(problem)
  local callback = self._on_leave
  self._leaves, self._on_leave = false, nil
  call(callback, problem)
end

--- The seat is gone (R9, R24). If the session has ended, the client joins again.
function Room:_lose(why)
  local kept, first, last, leaves = self._kept, self._first, self._last, self._leaves
  if self.status == "joined" then self._join.watch = self.spectator or nil end -- R37
  self:_end_request()
  self:_forget()
  if why.code == "session_ended" and not leaves then
    self._join.rejoin = true
    self:_start(self._join)
  else
    self.status, self.error = "left", leaves and Room.make_error({ code = "left" }) or why
    self._client:_remove(self)
  end
  local unknown = Room.make_error({ code = "seat_lost", message = "the outcome is unknown" })
  for ref = first, last do
    if kept[ref] then self:_finish(kept[ref], unknown) end
  end
  if leaves then self:_end_leave() end
  if self.status ~= "left" then return end
  if self.on_left then return self.on_left(self.error) end
  if not leaves and self._client.status ~= "closed" then self._client.on_error(self.error, self) end
end

local TAKE = {}

--- Takes a message about this room.
function Room:_take(message)
  if TAKE[message.t] then TAKE[message.t](self, message) end
end

function TAKE.ack(self, message)
  for ref = self._first, math.min(message.ref, self._last) do
    self:_settle(ref)
  end
end

function TAKE.reply(self, message)
  local kept = self._kept[message.ref]
  if kept then kept.reply = message.data end
end

function TAKE.error(self, message)
  if message.ref then return self:_settle(message.ref, Room.make_error(message)) end
  self._client.on_error(Room.make_error(message), self)
end

function TAKE.left(self, message)
  local code = message.code or message.reason
  self:_lose(Room.make_error({ code = code, message = message.message, match = message.match }))
end

function TAKE.event(self, message) call(self.on_event, message.name, message.data) end

function TAKE.spectators(self, message)
  self.spectators = message.count
  call(self.on_members)
end

--- Takes a new list of members, and with it the role of this client (R38).
function Room:_set_members(members)
  self.members = members
  local me = members[self.member_id]
  self.spectator = not me or me.spectator == true
end

local function member_of(fields)
  local member = { member_id = fields.member_id, sub = fields.sub, connected = fields.connected }
  member.spectator = fields.spectator
  return member
end

--- Replaces, adds or removes the entry of a member (R15).
function TAKE.member(self, message)
  local members = values.copy(self.members)
  members[message.member_id] = message.connected ~= nil and member_of(message) or nil
  self:_set_members(members)
  call(self.on_members)
end

--- Asks for the whole state. Until it arrives, the patches of this room do not count (R14).
function Room:_ask(reason)
  self._is_broken = true
  self._client:_send({ t = "state.resync", room_id = self.room_id, reason = reason })
end

--- Takes a frame of the state with its layers: all, or nothing. Returns true if it could.
function Room:_apply(frame)
  local could, after = pcall(states.after, frame, self._states, self._client._checksum)
  if not could then return self:_ask("checksum") end
  self._states, self.seq, self.epoch = after, frame.seq, frame.epoch or self.epoch
  return true
end

function Room:_show(is_first)
  local previous = self.state
  self.state = self._states.shown
  if is_first then call(self.on_joined) end
  if self.state ~= previous then call(self.on_change, self.state, previous) end
end

TAKE["state.patch"] = function(self, frame)
  if self._is_broken then return end
  if frame.seq ~= self.seq + 1 then return self:_ask("sequence") end
  if self:_apply(frame) then self:_show() end
end

--- Takes a whole state (R11).
TAKE["state.resync"] = function(self, frame)
  if not self:_apply(frame) then return end
  self._is_broken = false
  local members, is_first = {}, self.status ~= "joined"
  for _, member in ipairs(frame.members) do
    members[member.member_id] = member_of(member)
  end
  if is_first then
    self.status = "joined"
    self:_end_request()
    local leaves = self._leaves
    self:_send_early()
    if self.status == "left" then return end -- By a callback.
    if leaves then return self:leave(self._on_leave) end
  end
  self:_set_members(members)
  self:_show(is_first)
  call(self.on_members)
end
TAKE["state.snapshot"] = TAKE["state.resync"]

return Room
