--- Three players, for the conformance proxy:
--- npm run conformance -- --client ws://127.0.0.1:7350 --exec "luajit bot.lua" (in clients/lua)
local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. here .. "/?/init.lua;" .. package.path
local roomful = require("roomful")
local socket = require("socket")

-- Outcomes that a player may get: a card that may not be played, and a session that has ended.
local EXPECTED = {
  room_logic_refused = true,
  outcome_unknown = true,
  seat_lost = true,
  not_in_room = true,
  closed = true,
  ["4042"] = true,
}
local CARD_ACTS = { "deal", "draw", "pass" }
local PAUSE = 0.05

local function check(problem)
  if not problem or EXPECTED[problem.code] then return end
  io.stderr:write("not expected: ", tostring(problem), "\n")
  os.exit(1)
end

--- Starts a player. Returns its client and a function that acts once, if the last act has ended.
local function player(name, codec)
  local client = roomful.connect(os.getenv("ROOMFUL_URL"), {
    codec = codec,
    project_id = os.getenv("ROOMFUL_PROJECT_ID"),
    get_token = function(answer, client)
      local url = os.getenv("ROOMFUL_TOKEN_URL")
      url = url .. (url:find("?", 1, true) and "&" or "?") .. "name=" .. name
      client:post(
        url,
        { sub = name },
        function(body, problem) answer(body and body.token, problem) end
      )
    end,
  })
  client.on_error = check
  local counter = client:join("counter", { key = "lua" })
  local cards = client:join("cards", { key = "lua" })
  local turn, waiting = 0, 0
  local function done(_, problem)
    check(problem)
    waiting = waiting - 1
  end
  return client,
    function()
      if waiting > 0 or not counter.state or not cards.state then return end
      turn, waiting = turn + 1, 2
      counter:send_unreliable("inc", { by = 1 })
      counter:send("inc", { by = 1 }, done)
      cards:send(CARD_ACTS[turn % #CARD_ACTS + 1], nil, done)
    end
end

local players = {}
for name, codec in pairs({ ada = "json", bob = "msgpack", cyd = "msgpack" }) do
  local client, act = player(name, codec)
  table.insert(players, { client = client, act = act })
end
local slowest, act_at = 0, 0
repeat
  local is_open, now = false, socket.gettime()
  for _, one in ipairs(players) do
    one.client:update()
    is_open = is_open or one.client.status ~= "closed"
    if now >= act_at then one.act() end
  end
  slowest = math.max(slowest, socket.gettime() - now)
  if now >= act_at then act_at = now + PAUSE end
  socket.sleep(0.005)
until not is_open
print(("slowest update of three clients: %.1f ms"):format(slowest * 1000))
