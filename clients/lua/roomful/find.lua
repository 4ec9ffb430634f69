--- Level 6 for the client: lists of rooms, codes, rooms with a free seat; and queues.
local here = (...):gsub("[^.]*$", "")
local Room = require(here .. "room")
local values = require(here .. "values")

local SEARCH_SECONDS = 10
-- After these refusals, another room may have a free seat (R36).
local ELSEWHERE = { room_full = true, banned = true, already_joined = true }

--- Returns the list after a message `rooms` (R35).
local function list_after(list, message)
  local result = message.rooms or values.splice(list, #list, 0, {})
  for _, index in ipairs(message.gone or {}) do
    table.remove(result, index + 1)
  end
  for number, index in ipairs(message.at or {}) do
    table.insert(result, index + 1, message.set[number])
  end
  return result
end

--- Returns the `join` of a room that the server has named: {room_type, key, create}.
local function join_of(found, options, how)
  local named = values.copy(options or {})
  named.key = found.key
  return {
    t = "join",
    room_type = found.room_type,
    options = named,
    create = found.create,
    watch = how and how.watch,
  }
end

--- Adds the methods of level 6.
return function(Client)
  local function list(client, room_type, query, watch, callback)
    local request = { t = "rooms", room_type = room_type, query = query, watch = watch }
    local rows, id = values.array(), nil
    id = client:_request(request, function(message)
      if message.t == "error" or not watch then client:_forget(id) end
      if message.t == "error" then return callback(nil, Room.make_error(message)) end
      rows = list_after(rows, message)
      callback(rows)
    end)
    return function()
      if client:_forget(id) then client:_send({ t = "rooms.end", request_id = id }) end
    end
  end

  --- Asks for the rooms of a type that fit a query.
  ---@param callback fun(rooms: table[]?, error: roomful.Error?)
  function Client:rooms(room_type, query, callback) list(self, room_type, query, nil, callback) end

  --- As `rooms`, and again after changes. Returns a function that ends it.
  function Client:watch_rooms(room_type, query, callback)
    return list(self, room_type, query, true, callback)
  end

  --- Joins the room with a code. `how`: {watch}.
  ---@return roomful.Room
  function Client:join_by_code(code, options, how)
    local room = self:_add_room()
    room:_find(
      { t = "find", code = code },
      function(found) room:_start(join_of(found, options, how)) end
    )
    return room
  end

  --- Joins a room that has a free seat and fits a query, or a new one with these options.
  ---@return roomful.Room
  function Client:join_or_create(room_type, options, query)
    local room, stop_at = self:_add_room(), self._now + SEARCH_SECONDS
    local wanted = { room_type = room_type, query = query, options = options }
    local search

    local function refused(why)
      if not ELSEWHERE[why.code] then return room:_lose(why) end
      if self._now < stop_at then return search() end
      local problem = "no room with a free seat within 10 seconds"
      room:_lose(
        Room.make_error({ code = "room_unavailable", message = problem, retryable = true })
      )
    end

    function search()
      room:_find(
        { t = "find", room = wanted },
        function(found) room:_start(join_of(found, options), refused) end
      )
    end

    search()
    return room
  end

  --- Takes a ticket in a queue, and joins the room of its match. Until then, `room.queue` is the
  --- seat in the queue, with its state. `party`: the code that all members of the party have.
  ---@return roomful.Room
  function Client:find_match(queue_type, ticket, party)
    local room = self:_add_room()
    local options = { ticket = ticket, party = party, seen = self._matches[queue_type] }
    room.queue = self:join(queue_type, options)
    function room.queue.on_left(why)
      room.queue = nil
      local match = why.match
      if not match then return room:_lose(why) end
      self._matches[queue_type] = match.room_id
      local match_type, key = match.room_id:match("^(.-):(.*)$")
      room:_start(join_of({ room_type = match_type, key = key, create = false }, match.options))
    end
    return room
  end
end
