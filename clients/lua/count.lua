--- One player who counts while servers fail. The environment has ROOMFUL_URL, ROOMFUL_TOKEN_URL,
--- ROOMFUL_NAME, ROOMFUL_CODEC, ROOMFUL_KEY, ROOMFUL_MESSAGES (how many it sends, one every 20 ms)
--- and ROOMFUL_TOTAL (how many all players send). Prints what it saw as one line of JSON.
local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. here .. "/?/init.lua;" .. package.path
local roomful = require("roomful")
local http = require("roomful.http")
local json = require("roomful.json")
local socket = require("socket")
local state = require("roomful.state")
local Websocket = require("roomful.websocket")

local PAUSE, PATIENCE, LAST_SECONDS = 0.02, 60, 1
local name, codec = os.getenv("ROOMFUL_NAME"), os.getenv("ROOMFUL_CODEC")
local messages, total =
  tonumber(os.getenv("ROOMFUL_MESSAGES")), tonumber(os.getenv("ROOMFUL_TOTAL"))
local seen = { sent = 0, acknowledged = 0, resyncs = 0, slowest_ms = 0 }

--- Counts the whole states that the client asks for, or gets without a question.
local function count_resync(frame, number)
  if not frame then return end
  local is_json = codec == "json"
  local found = is_json and frame:sub(1, 40):find('"state.resync"') or frame:byte(2) == number
  if found then seen.resyncs = seen.resyncs + 1 end
end

local function open_socket(...)
  local opened = Websocket.open(...)
  function opened:send(frame)
    count_resync(frame, 4)
    return Websocket.send(self, frame)
  end
  function opened:receive()
    local frame = Websocket.receive(self)
    count_resync(frame, 20)
    return frame
  end
  return opened
end

local function post_for_token() return http.post(os.getenv("ROOMFUL_TOKEN_URL"), { sub = name }, {}) end

--- Waits for the first answer, which has the id of the project.
local function project_id()
  local poll = post_for_token()
  while true do
    local done, answer, problem = poll()
    if done then return answer and answer.project_id or error(problem) end
    socket.sleep(0.01)
  end
end

local client = roomful.connect(os.getenv("ROOMFUL_URL"), {
  project_id = project_id(),
  codec = codec,
  open_socket = open_socket,
  get_token = function(answer, client)
    client:post(
      os.getenv("ROOMFUL_TOKEN_URL"),
      { sub = name },
      function(body, problem) answer(body and body.token, problem) end
    )
  end,
})
local room = client:join("counter", { key = os.getenv("ROOMFUL_KEY") })
function room.on_left(why) io.stderr:write(name, " has left: ", tostring(why), "\n") end

local function acknowledged(_, problem)
  seen.acknowledged = seen.acknowledged + (problem and 0 or 1)
  if problem then io.stderr:write(name, ": ", tostring(problem), "\n") end
end

local send_at, stop_at = socket.gettime(), math.huge
while socket.gettime() < stop_at do
  local now = socket.gettime()
  client:update()
  seen.slowest_ms = math.max(seen.slowest_ms, (socket.gettime() - now) * 1000)
  if room.state and seen.sent < messages and now >= send_at then
    room:send("inc", { by = 1 }, acknowledged)
    seen.sent, send_at = seen.sent + 1, send_at + PAUSE
    if seen.sent == messages then stop_at = now + PATIENCE end
  end
  if not room.state then send_at = now end
  local has_all = seen.sent == messages and room.pending == 0
  if has_all and room.state and room.state.count >= total then
    stop_at = math.min(stop_at, now + LAST_SECONDS)
  end
  socket.sleep(0.002)
end
seen.state, seen.checksum = room.state, state.checker()(room.state)
room.on_left = nil
client:close()
print(json.encode(seen))
