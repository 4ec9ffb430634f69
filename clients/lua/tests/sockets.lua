--- Runs the websocket and the client against servers in this process, over real sockets.
local bits = require("roomful.bits")
local roomful = require("roomful")
local socket = require("socket")
local support = require("tests.support")
local uint = require("roomful.msgpack").uint
local Websocket = require("roomful.websocket")

local equal = support.equal
local HOW = { random = math.random, tls = {} }
local HANDSHAKE = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

--- Returns a server that listens, and its port.
local function listen()
  local server = assert(socket.bind("127.0.0.1", 0))
  local _, port = server:getsockname()
  return server, port
end

--- Polls until the condition holds, for at most 60 seconds. Returns its result.
local function wait_for(poll, condition)
  local stop_at = socket.gettime() + 60
  while socket.gettime() < stop_at do
    poll()
    local result = condition()
    if result then return result end
  end
  error("not within 60 seconds", 0)
end

--- Opens a websocket to a new server. Returns it and the server's end.
local function open()
  local server, port = listen()
  local client = Websocket.open("ws://127.0.0.1:" .. port, "roomful.v1.msgpack", HOW)
  server:settimeout(0)
  local peer = wait_for(function() client:poll() end, function() return server:accept() end)
  server:close()
  repeat
    client:poll()
    local line = peer:receive("*l")
  until line == ""
  return client, peer
end

--- Returns a frame of the server.
local function frame(opcode, data)
  local size = #data < 126 and string.char(#data)
    or #data < 65536 and "\126" .. uint(#data, 2)
    or "\127" .. uint(#data, 8)
  return string.char(opcode) .. size .. data
end

local function receive(client)
  return wait_for(function() client:poll() end, function() return client:receive() end)
end

--- Sends bytes, and lets the client read while the buffers of the system are full.
local function send(client, peer, bytes)
  peer:settimeout(0)
  local sent = 0
  while sent < #bytes do
    local last, _, partial = peer:send(bytes, sent + 1)
    sent = last or partial
    client:poll()
  end
end

local TESTS = {}

local function test(name, run) table.insert(TESTS, { name, run }) end

test("frames of all sizes arrive whole, also more than the system keeps for a socket", function()
  local client, peer = open()
  send(client, peer, HANDSHAKE)
  for _, size in ipairs({ 0, 125, 126, 65535, 65536, 9 * 1024 * 1024 }) do
    local data = ("x"):rep(size)
    send(client, peer, frame(0x82, data))
    assert(receive(client) == data, size .. " bytes")
  end
end)

test("a frame that arrives byte by byte, and one in three parts around a ping", function()
  local client, peer = open()
  local bytes = HANDSHAKE .. frame(0x82, "whole") .. frame(0x02, "in ")
  bytes = bytes .. frame(0x89, "ping") .. frame(0x00, "three ") .. frame(0x80, "parts")
  for index = 1, #bytes do
    send(client, peer, bytes:sub(index, index))
    socket.sleep(0.0005)
  end
  equal(receive(client), "whole")
  equal(receive(client), "in three parts")
  equal(peer:receive(2), string.char(0x8A, 0x84), "the pong")
end)

test("what the client sends is masked", function()
  local client, peer = open()
  send(client, peer, HANDSHAKE)
  wait_for(function() client:poll() end, function() return client.stage == "open" end)
  for _, size in ipairs({ 3, 126, 70000 }) do
    local data = ("abcde"):rep(size / 5 + 1):sub(1, size)
    client:send(data)
    peer:settimeout(5)
    local length = size < 126 and 0 or size < 65536 and 2 or 8
    equal(peer:receive(2):byte(2), 128 + (length == 0 and size or length == 2 and 126 or 127))
    if length > 0 then equal(peer:receive(length), uint(size, length)) end
    local mask, masked = peer:receive(4), nil
    masked = wait_for(function() client:poll() end, function() return peer:receive(size) end)
    for _, place in ipairs({ 1, 2, 3, size }) do
      local byte = bits.bxor(masked:byte(place), mask:byte((place - 1) % 4 + 1))
      equal(string.char(byte), data:sub(place, place))
    end
  end
end)

test("what the buffers of the system cannot take is written later", function()
  local client, peer = open()
  send(client, peer, HANDSHAKE)
  wait_for(function() client:poll() end, function() return client.stage == "open" end)
  local numbers = {}
  for number = 1, 2 ^ 20 do
    numbers[number] = ("%08d"):format(number)
  end
  local data, received, parts = table.concat(numbers), 0, {}
  client._stream:write(data)
  assert(client._stream._out ~= "", "nothing is left")
  peer:settimeout(0)
  wait_for(function() client:poll() end, function()
    local whole, _, partial = peer:receive(65536)
    table.insert(parts, whole or partial)
    received = received + #parts[#parts]
    return received >= #data
  end)
  assert(table.concat(parts) == data, "other data")
end)

test("the code and the reason of a close frame", function()
  local client, peer = open()
  send(client, peer, HANDSHAKE .. frame(0x88, uint(4101, 2) .. "draining"))
  wait_for(function() client:poll() end, function() return client.stage == "closed" end)
  equal({ code = client.code, reason = client.reason }, { code = 4101, reason = "draining" })
end)

test(
  "a server without a websocket, or with none at all, is a problem that the game can show",
  function()
    local client, peer = open()
    send(client, peer, "HTTP/1.1 404 Not Found\r\n\r\n")
    wait_for(function() client:poll() end, function() return client.stage == "closed" end)
    equal(client.reason, "HTTP status 404: the server has no websocket at this address")
    local server, port = listen()
    server:close()
    local url, stderr, printed = "ws://127.0.0.1:" .. port, io.stderr, {}
    local nobody = roomful.connect(url, { get_token = function(answer) answer("token") end })
    io.stderr = { write = function(_, ...) table.insert(printed, table.concat({ ... })) end }
    wait_for(function() nobody:update() end, function() return nobody.problem end)
    io.stderr = stderr
    equal(nobody.problem, ("no connection to 127.0.0.1 port %d: connection refused"):format(port))
    equal(nobody.status, "connecting")
    equal(printed, { "roomful: connecting: " .. nobody.problem .. "\n" })
  end
)

test("an answer to a post that the game makes", function()
  local server, port = listen()
  local client = roomful.connect("ws://127.0.0.1:1", { get_token = function() end })
  local answers = {}
  for index, answer in ipairs({ '200 OK\r\n\r\n{"token":"t"}', "500 Oh\r\n\r\nbroken" }) do
    client:post(
      ("http://127.0.0.1:%d/token"):format(port),
      { sub = "ada" },
      function(value, problem) answers[index] = { value = value, problem = problem } end
    )
    server:settimeout(0)
    local peer = wait_for(function() client:update() end, function() return server:accept() end)
    local request = ""
    peer:settimeout(0)
    wait_for(function() client:update() end, function()
      local _, _, partial = peer:receive(1000)
      request = request .. (partial or "")
      return request:find('{"sub":"ada"}', 1, true)
    end)
    assert(request:find("^POST /token HTTP/1.0\r\n"), request)
    peer:send("HTTP/1.1 " .. answer)
    peer:close()
    wait_for(function() client:update() end, function() return answers[index] end)
  end
  equal(answers[1], { value = { token = "t" } })
  equal(
    answers[2],
    { problem = ("http://127.0.0.1:%d/token: HTTP status 500 broken"):format(port) }
  )
end)

test("a wss: address without lua-sec says what to install", function()
  local loaded = package.loaded.ssl
  package.loaded.ssl, package.preload.ssl = nil, function() error("not there") end
  local client = Websocket.open("wss://127.0.0.1:1", "roomful.v1.json", HOW)
  client:poll()
  package.loaded.ssl, package.preload.ssl = loaded, nil
  assert(client.reason:find("luarocks install luasec", 1, true), client.reason)
end)

--- Returns the number of failures.
return function() return support.run("sockets", TESTS) end
