--- A websocket (RFC 6455) that never blocks.
local here = (...):gsub("[^.]*$", "")
local bits = require(here .. "bits")
local Stream = require(here .. "stream")
local uint = require(here .. "msgpack").uint
local Websocket = {}
Websocket.__index = Websocket

local TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
local NO_CLOSE_FRAME, NO_CODE = 1006, 1005
local BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local HANDSHAKE = "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
  .. "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n"

--- Returns the parts of an address with ws: or wss:.
function Websocket.parse(url) return Stream.parse(url, "ws") end

--- Opens a websocket. `how`: {random, tls}. `stage` is `opening`, `open`, or `closed`: then
--- `code` is the close code, and `reason` a text.
function Websocket.open(url, subprotocol, how)
  local address = Websocket.parse(url)
  local self = setmetatable({ stage = "opening", _random = how.random, _needed = 1 }, Websocket)
  self._frames, self._first = {}, 1 -- Whole frames, and the index of the next one.
  self._opcode = subprotocol:find("msgpack") and BINARY or TEXT
  self._stream = Stream.open(address, how.tls)
  local key = {}
  for index = 1, 21 do
    local digit = math.floor(how.random() * 64) + 1
    key[index] = BASE64:sub(digit, digit)
  end
  local host = address.host:find(":") and "[" .. address.host .. "]" or address.host
  local key_text = table.concat(key) .. "A==" -- 16 bytes.
  self._stream:write(HANDSHAKE:format(address.path, host, address.port, key_text, subprotocol))
  return self
end

function Websocket:_closed(code, reason)
  if self.stage == "closed" then return end
  self.stage, self.code, self.reason = "closed", code, reason
  self._stream:close()
end

function Websocket:_write(opcode, data)
  local mask, bytes = {}, {}
  for index = 0, 3 do
    mask[index] = math.floor(self._random() * 256)
  end
  for index = 1, #data do
    bytes[index] = string.char(bits.bxor(data:byte(index), mask[(index - 1) % 4]))
  end
  local length = #data < 126 and string.char(128 + #data)
    or #data < 65536 and "\254" .. uint(#data, 2)
    or "\255" .. uint(#data, 8)
  local head = string.char(128 + opcode) .. length
  self._stream:write(head .. string.char(mask[0], mask[1], mask[2], mask[3]) .. table.concat(bytes))
end

--- Sends a frame.
function Websocket:send(frame)
  if self.stage == "open" then self:_write(self._opcode, frame) end
end

--- Closes the websocket. The server gets a close frame, but nobody waits for its answer.
function Websocket:close()
  if self.stage == "open" then self:_write(CLOSE, uint(1000, 2)) end
  self:_closed(NO_CLOSE_FRAME, "closed by this client")
end

--- Reads the answer to the handshake. Returns the place after it.
function Websocket:_read_handshake(input)
  local after = input:match("\r\n\r\n()")
  if not after then return 1 end
  local status = input:match("^HTTP/%d%.%d (%d+)") or "missing"
  self.stage = status == "101" and "open" or self.stage
  if status ~= "101" then
    local problem = "HTTP status %s: the server has no websocket at this address"
    self:_closed(NO_CLOSE_FRAME, problem:format(status))
  end
  return after
end

--- Reads a frame from a place of the input. Returns the place after it, or nil and the number of
--- bytes that it needs.
function Websocket:_read_frame(input, at)
  local first, size = input:byte(at, at + 1)
  local start = at + 2
  local long = size == 126 and 2 or size == 127 and 8 or 0
  if #input < start + long - 1 then return nil, 2 + long end
  if long > 0 then size = 0 end
  for index = start, start + long - 1 do
    size = size * 256 + input:byte(index)
  end
  local after = start + long + size
  if #input < after - 1 then return nil, after - at end
  self:_take(first >= 128, first % 16, input:sub(start + long, after - 1))
  return after
end

function Websocket:_take(is_last, opcode, data)
  if opcode == PING then
    self:_write(PONG, data)
  elseif opcode == CLOSE then
    local high, low = data:byte(1, 2)
    self:_write(CLOSE, data:sub(1, 2))
    self:_closed(low and high * 256 + low or NO_CODE, data:sub(3))
  elseif opcode < CLOSE then
    self._parts = self._parts or {}
    table.insert(self._parts, data)
    if not is_last then return end
    table.insert(self._frames, table.concat(self._parts))
    self._parts = nil
  end
end

--- Reads and writes what is possible now. It reads nothing while frames wait for `receive`, so that
--- a server that is too fast has to wait.
function Websocket:poll()
  if self.stage == "closed" or self._frames[self._first] then return end
  self._frames, self._first = {}, 1
  self._stream:poll()
  local input, at = self._stream:take(self._needed), 1
  if input ~= "" and self.stage == "opening" then at = self:_read_handshake(input) end
  while input ~= "" and self.stage == "open" do
    local after, needed = self:_read_frame(input, at)
    self._needed = needed or 2
    if not after then break end
    at = after
  end
  self._stream:put_back(input:sub(at))
  if self._stream.stage == "closed" then self:_closed(NO_CLOSE_FRAME, self._stream.problem) end
end

--- Returns the next frame, or nil.
function Websocket:receive()
  local frame = self._frames[self._first]
  if frame then self._first = self._first + 1 end
  return frame
end

return Websocket
