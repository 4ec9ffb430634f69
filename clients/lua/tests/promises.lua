--- What the client promises to a game, beyond the protocol.
local Runner = require("tests.runner")
local roomful = require("roomful")
local state = require("roomful.state")
local support = require("tests.support")

local equal = support.equal
local TESTS = {}

local function test(name, run) table.insert(TESTS, { name, run }) end

--- Returns a runner after one of the starts of the scenarios, and the room if there is one.
local function start(name)
  local runner = Runner.new("json")
  runner:run(Runner.FILE.starts[name])
  return runner, runner.rooms["arena:lobby"]
end

--- Returns the messages on the latest socket with this name.
local function sent(runner, t)
  local found = {}
  for _, frame in ipairs(runner.sockets[#runner.sockets].sent) do
    local message = support.client_message(frame)
    if message.t == t then table.insert(found, message) end
  end
  return found
end

--- Lets the server answer a join with a state.
local function serve_state(runner, request_id, room_id, value)
  runner:serve({ t = "joined", request_id = request_id, room_id = room_id, member_id = "mem_me" })
  local snapshot = { t = "state.snapshot", room_id = room_id, epoch = 1790000000000, seq = 1 }
  snapshot.state, snapshot.checksum, snapshot.members =
    value, state.checker()(value), roomful.array()
  runner:serve(snapshot)
  runner:pass_time()
end

test(
  "a backend that does not answer is a problem that the game can show, and is asked again",
  function()
    local runner, changes = Runner.new("json"), {}
    runner.token_delay = 1000
    runner:connect()
    function runner.client.on_status(status, problem) table.insert(changes, { status, problem }) end
    runner:pass_time(9)
    equal(runner.client.problem or "none", "none")
    runner:pass_time(2)
    local problem = "no token: get_token has not answered for 10 seconds"
    equal(changes, { { "connecting", problem } })
    equal(runner.tokens, 2)
    runner:pass_time(40)
    equal(runner.client.status, "connecting")
    equal(#runner.sockets, 0)
  end
)

test(
  "a token that is no text is a problem, and an answer that comes too late does not count",
  function()
    local runner, answers = Runner.new("json"), {}
    runner:connect()
    runner.client._get_token = function(answer) table.insert(answers, answer) end
    runner:pass_time()
    answers[1](nil, "the backend is closed")
    equal(runner.client.problem, "no token: the backend is closed")
    runner:pass_time(1)
    answers[1]("late")
    runner:pass_time(1)
    equal(#runner.sockets, 0)
    answers[2]("good")
    runner:pass_time()
    runner.sockets[1].stage = "open"
    runner:pass_time()
    equal(sent(runner, "hello")[1].token, "good")
  end
)

test("a game that stops for a minute keeps its connection, and sends a ping", function()
  local runner = start("in_room")
  local pings = #sent(runner, "ping")
  runner.now = runner.now + 60
  runner.client:update()
  equal(runner.client.status, "connected")
  equal(#sent(runner, "ping"), pings + 1)
  runner:pass_time(25)
  equal(runner.client.status, "reconnecting")
end)

test("one update takes messages for 4 ms, the next one continues", function()
  local runner, room = start("in_room")
  for number = 1, 30 do
    runner:serve({ t = "event", room_id = "arena:lobby", name = "boom", data = number })
  end
  local taken = {}
  function room.on_event(_, data)
    table.insert(taken, data)
    runner.now = runner.now + 0.001
  end
  runner.client:update()
  assert(#taken > 0 and #taken < 10, #taken)
  while #taken < 30 do
    runner.client:update()
  end
  equal(taken[30], 30)
end)

test("an event sees the state of its flush", function()
  local runner, room = start("in_room")
  local seen = {}
  function room.on_event() table.insert(seen, room.state.n) end
  for number, checksum in ipairs({ 4255483898, 1436850272 }) do
    local ops = { { op = "replace", path = "/n", value = number + 1 } }
    local patch = { t = "state.patch", room_id = "arena:lobby", epoch = room.epoch, ops = ops }
    patch.seq, patch.checksum = 10 + number, checksum
    runner:serve(patch)
    runner:serve({ t = "event", room_id = "arena:lobby", name = "n", data = number })
  end
  runner:pass_time()
  equal(seen, { 2, 3 })
end)

test("a close code that ends the client is its error, and ends its rooms", function()
  local runner, room = start("in_room")
  local left
  function room.on_left(why) left = why end
  runner:run({ { close = 4001 } })
  equal(runner.client.status, "closed")
  equal({ runner.client.error.code, left.code, room.status }, { "4001", "4001", "left" })
  local _, problem
  room:send("move", {}, function(_, why) problem = why end)
  equal(problem.code, "not_in_room")
  equal(pcall(runner.client.join, runner.client, "arena"), false)
end)

test("the end of a seat is an error of the client if the game has no on_left", function()
  local runner, errors = start("online"), {}
  function runner.client.on_error(problem, room)
    table.insert(errors, tostring(problem) .. ", " .. room.status)
  end
  local room = runner.client:join("arenna")
  local refusal = { t = "error", request_id = 1, code = "unknown_room_type", message = "none" }
  runner:serve(refusal)
  runner:pass_time()
  equal(errors, { "unknown_room_type: none, left" })
  room = runner.client:join("arena", { key = "lobby" })
  serve_state(runner, 2, "arena:lobby", 1)
  room:leave()
  runner.client:close()
  equal(#errors, 1)
end)

test("callbacks may close the client, leave and join", function()
  local runner, room = start("in_room")
  function room.on_event(name)
    if name == "leave" then room:leave() end
    if name == "join" then runner.client:join("arena", { key = "other" }) end
    if name == "close" then runner.client:close() end
  end
  for _, name in ipairs({ "leave", "join", "close", "never" }) do
    runner:serve({ t = "event", room_id = "arena:lobby", name = name })
  end
  runner:pass_time()
  equal({ #sent(runner, "leave"), #sent(runner, "join"), #sent(runner, "goodbye") }, { 1, 1, 1 })
  equal(room.error.code, "left")
end)

test("messages before the first state wait, and leaving does, too", function()
  local runner = start("online")
  local room, data = runner.client:join("arena", { key = "lobby" }), { now = true }
  local limit, refusal = runner.client.limits.max_message_bytes, nil
  -- It fits only without the id of the room, and would end the client.
  room:send("long", ("x"):rep(limit - 70), function(_, why) refusal = why.code end)
  room:send("ready", data)
  data.now = false
  equal({ room.pending, room:send_unreliable("aim") }, { 2, false })
  room:leave()
  runner:pass_time()
  equal(#sent(runner, "message"), 0)
  serve_state(runner, 1, "arena:lobby", roomful.null)
  local ready = { t = "message", room_id = "arena:lobby", type = "ready", ref = 1, settled = 0 }
  ready.data = { now = true }
  equal(sent(runner, "message"), { ready })
  equal({ refusal, room.pending }, { "payload_too_large", 1 })
  equal(#sent(runner, "leave"), 1)
end)

test("a callback of a message that waited for the first state may leave", function()
  local runner = start("online")
  local room = runner.client:join("arena", { key = "lobby" })
  local long = ("x"):rep(runner.client.limits.max_message_bytes)
  room:send("long", long, function() room:leave() end)
  serve_state(runner, 1, "arena:lobby", roomful.null)
  equal(#sent(runner, "leave"), 1)
end)

test("a second connection that does not open within 5 seconds ends the move", function()
  local runner = start("in_room")
  runner:serve({ t = "move", in_ms = 0, url = "ws://node2.test/" })
  runner:pass_time(4)
  equal({ #runner.sockets, runner.sockets[2].was_closed or false }, { 2, false })
  runner:pass_time(2)
  equal({ #runner.sockets, runner.sockets[2].was_closed or false }, { 2, true })
  equal(runner.client.status, "connected")
end)

test("data that JSON does not have is an error where the game sends it", function()
  local _, room = start("in_room")
  local cyclic = { 1, 2, x = 3 }
  for problem, data in pairs({
    ["nan cannot be sent: use a finite number"] = { x = 0 / 0 },
    ["a function cannot be sent: use plain data"] = { x = print },
    ["key x: use 1, 2, 3 … in arrays, texts in objects"] = cyclic,
    ["an array has a gap: use roomful.null in an empty place"] = roomful.array({ 1, nil, 3 }),
    ['a text is not UTF-8: "\237\160\128"'] = "\237\160\128",
  }) do
    local could, why = pcall(room.send, room, "move", data)
    equal(could, false)
    equal((why:gsub("^%-nan", "nan")), problem)
  end
  equal(room.pending, 0)
end)

test("a match of a queue is joined, and seen by the next ticket", function()
  local runner = start("online")
  local match
  for round = 1, 2 do
    local room = runner.client:find_match("ranked", { mode = "fast" }, "2-ab")
    runner:pass_time()
    local join = sent(runner, "join")[round * 2 - 1]
    equal(
      join.options,
      { key = "default", ticket = { mode = "fast" }, party = "2-ab", seen = match }
    )
    serve_state(runner, join.request_id, "ranked:default", { waiting = 12 })
    equal(room.queue.state.waiting, 12)
    match = "duel:4f2a" .. round
    runner:serve({
      t = "left",
      room_id = "ranked:default",
      reason = "kicked",
      match = { room_id = match, options = { map = "desert" } },
    })
    runner:pass_time()
    local join_match = sent(runner, "join")[round * 2]
    equal(join_match.options, { key = "4f2a" .. round, map = "desert" })
    equal({ join_match.room_type, join_match.create }, { "duel", false })
    runner:serve({
      t = "error",
      code = "room_full",
      message = "full",
      retryable = true,
      request_id = join_match.request_id,
    })
    runner:pass_time()
    equal({ room.status, room.error.code }, { "left", "room_full" })
  end
end)

--- Returns the number of failures.
return function() return support.run("promises", TESTS) end
