--- The example game `arena`, in the same room as the browser. Start roomful with `npm start`, then:
--- love clients/lua/arena [room] [name] [address]
--- Walk with the arrow keys or W A S D, or click where to walk. Space hits the nearest player.
local folder = love.filesystem.getSource() .. "/.."
package.path = folder .. "/?.lua;" .. folder .. "/?/init.lua;" .. package.path
local roomful = require("roomful")

local SIDE, RADIUS, REACH = 1000, 25, 170
local SPEED = 330
local SEND_SECONDS, MOST_PENDING = 0.05, 10
-- A player who is farther away than this from the place where it is drawn has jumped.
local LEAP = 220
-- The share of the way to the real place that a drawn player makes in a second.
local CATCH_UP = 12
local KEYS = {
  left = { -1, 0 },
  right = { 1, 0 },
  up = { 0, -1 },
  down = { 0, 1 },
  a = { -1, 0 },
  d = { 1, 0 },
  w = { 0, -1 },
  s = { 0, 1 },
}

local client, room
local places = {} -- Where each player is drawn, by member id.
local goal, unsent_since, hits = nil, 0, {}

function love.load(arguments)
  love.graphics.setFont(love.graphics.newFont(20))
  local key, name, url = unpack(arguments)
  client = roomful.connect(url or "ws://localhost:4000", { dev = name or "love" })
  room = client:join("arena", { key = key or "lobby" })
  function room.on_event(event, data)
    if event == "hit" then hits[data.target] = love.timer.getTime() end
  end
  --- The room has put this player somewhere else: after a join, or a knockout.
  function room.on_change(state, previous)
    local me, before = state.players[room.member_id], previous and previous.players[room.member_id]
    local was_knocked_out = me and before and me.hp > before.hp
    if me and (not before or was_knocked_out) then
      places[room.member_id], goal = nil, nil
    end
  end
end

local function distance(a, b) return math.sqrt((a.x - b.x) ^ 2 + (a.y - b.y) ^ 2) end

local function nearest()
  local me, best, best_distance = places[room.member_id], nil, REACH
  for id, place in pairs(me and places or {}) do
    local away = distance(me, place)
    if id ~= room.member_id and away < best_distance then
      best, best_distance = id, away
    end
  end
  return best
end

local function clamp(value) return math.max(0, math.min(SIDE, value)) end

--- Moves this player by the keys, or towards the goal, before the server has answered.
local function walk(me, dt)
  local x, y = 0, 0
  for key, direction in pairs(KEYS) do
    if love.keyboard.isDown(key) then
      x, y, goal = x + direction[1], y + direction[2], nil
    end
  end
  if goal then
    x, y = goal.x - me.x, goal.y - me.y
  end
  local length = math.sqrt(x * x + y * y)
  if length < 1 then return end
  local step = math.min(SPEED * dt, goal and length or SPEED * dt)
  me.x, me.y = clamp(me.x + x / length * step), clamp(me.y + y / length * step)
  me.is_new = true
end

--- Moves the other players smoothly to where they are.
local function follow(players, dt)
  for id, player in pairs(players) do
    local place = places[id]
    if not place or distance(place, player) > LEAP then
      places[id] = { x = player.x, y = player.y }
    elseif id ~= room.member_id then
      local share = math.min(1, CATCH_UP * dt)
      place.x = place.x + (player.x - place.x) * share
      place.y = place.y + (player.y - place.y) * share
    end
  end
  for id in pairs(places) do
    if not players[id] then places[id] = nil end
  end
end

function love.update(dt)
  client:update()
  if not room.state then return end
  follow(room.state.players, dt)
  local me = places[room.member_id]
  if not me then return end
  walk(me, dt)
  unsent_since = unsent_since + dt
  if me.is_new and unsent_since >= SEND_SECONDS and room.pending < MOST_PENDING then
    room:send("move", { x = me.x, y = me.y })
    me.is_new, unsent_since = false, 0
  end
end

function love.keypressed(key)
  local target = key == "space" and room.state and nearest()
  if target then room:send("hit", { target = target }) end
  if key == "escape" then love.event.quit() end
end

local function scale() return math.min(love.graphics.getDimensions()) / SIDE end

function love.mousepressed(x, y) goal = { x = clamp(x / scale()), y = clamp(y / scale()) } end

function love.quit()
  client:close()
  client:update()
end

--- Returns a colour that belongs to an id.
local function colour_of(id)
  local sum = 0
  for index = 1, #id do
    sum = (sum * 31 + id:byte(index)) % 360
  end
  local function part(turn) return 0.6 + 0.35 * math.cos(math.rad(sum + turn)) end
  return part(0), part(120), part(240)
end

local function draw_player(id, place, player)
  local member, is_me = room.members[id], id == room.member_id
  local is_hit = love.timer.getTime() - (hits[id] or 0) < 0.15
  local red, green, blue = colour_of(id)
  love.graphics.setColor(is_hit and 1 or red, is_hit and 1 or green, is_hit and 1 or blue)
  love.graphics.circle(member and member.connected and "fill" or "line", place.x, place.y, RADIUS)
  if is_me then
    love.graphics.setColor(1, 1, 1)
    love.graphics.setLineWidth(4)
    love.graphics.circle("line", place.x, place.y, RADIUS + 4)
  end
  love.graphics.setColor(0.9, 0.9, 0.9)
  -- Pages of the examples have names such as `Eve~x7`, or `~x7` if the player has chosen none.
  local name = is_me and "You" or (member and member.sub or ""):match("^[^~]*")
  love.graphics.printf(name ~= "" and name or "Player", place.x - 100, place.y - 68, 200, "center")
  love.graphics.rectangle("fill", place.x - 25, place.y - 38, 50 * player.hp / 100, 5)
end

function love.draw()
  love.graphics.scale(scale())
  love.graphics.setColor(0.13, 0.14, 0.18)
  love.graphics.rectangle("fill", 0, 0, SIDE, SIDE)
  love.graphics.setLineWidth(2)
  for id, place in pairs(places) do
    local player = room.state and room.state.players[id]
    if player then draw_player(id, place, player) end
  end
  local problem = client.problem or (room.error and tostring(room.error))
  local text = client.status == "connected" and room.status or client.status
  love.graphics.setColor(1, 1, 1)
  love.graphics.print(problem and text .. ": " .. problem or text, 12, 12)
end
