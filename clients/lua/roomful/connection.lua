--- One websocket of a session, with its codec, its heartbeat and its silence.
local Connection = {}
Connection.__index = Connection

-- Time limit for the websocket and the welcome (R3).
local WELCOME_SECONDS = 10

--- `previous` is the connection that this one continues after a move (R34).
function Connection.new(socket, codec, previous)
  local self = { socket = socket, codec = codec, previous = previous }
  self.is_ready = false -- The welcome has arrived.
  self._silence, self._patience = 0, WELCOME_SECONDS -- The silence is the time without a frame.
  return setmetatable(self, Connection)
end

--- True when the websocket is closed and no frame is left.
function Connection:has_ended() return self.socket.stage == "closed" and not self._frame end

--- Returns why it has ended, for developers.
function Connection:problem()
  local code, reason = self.socket.code, self._own_reason or self.socket.reason
  if code == 1006 then return reason or "the connection was cut" end
  return ("closed with %d: %s"):format(code, reason or "")
end

function Connection:close(reason)
  self._own_reason, self._frame = self._own_reason or reason, nil
  self.socket:close()
end

function Connection:send(message) self.socket:send(self.codec.encode(message)) end

--- Takes the welcome. From now on, the heartbeat counts (R3).
function Connection:welcome(now, heartbeat)
  self.is_ready, self.previous, self.welcomed_at = true, nil, now
  self._heartbeat, self._ping_at, self._patience = heartbeat, now + heartbeat, 2 * heartbeat
end

--- Reads and writes what is possible now. `elapsed`: seconds in which the game has run. Returns
--- true if a ping is due.
function Connection:poll(now, elapsed)
  self.socket:poll()
  self._frame = self._frame or self.socket:receive()
  self._silence = self._frame and 0 or self._silence + elapsed
  if self._silence >= self._patience and not self:has_ended() then
    self:close(("no answer for %d seconds"):format(self._patience))
  end
  if not self.is_ready or now < self._ping_at then return false end
  self._ping_at = now + self._heartbeat
  return true
end

--- Returns the next message, or nil. A frame that cannot be read ends the connection.
function Connection:receive()
  local frame = self._frame
  if not frame then return nil end
  self._frame = self.socket:receive()
  local could, message = pcall(self.codec.decode, frame)
  if could then return message end
  self:close("a frame cannot be read: " .. tostring(message))
end

return Connection
