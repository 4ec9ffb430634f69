--- Requests by HTTP that never block, such as for a token from a backend.
local here = (...):gsub("[^.]*$", "")
local json = require(here .. "json")
local Stream = require(here .. "stream")
local http = {}

--- Posts a value as JSON. Returns a function to call often: it returns nil until the request has
--- ended; then true and the JSON value of the answer, or true, nil and what went wrong.
--- `how`: {headers, tls}.
function http.post(url, value, how)
  local address, body = Stream.parse(url, "http"), json.encode(value)
  local stream = Stream.open(address, how.tls)
  local lines = { ("POST %s HTTP/1.0"):format(address.path) }
  local headers = { ["Content-Type"] = "application/json", ["Content-Length"] = #body }
  headers.Host = address.host .. ":" .. address.port
  for name, text in pairs(how.headers or {}) do
    headers[name] = text
  end
  for name, text in pairs(headers) do
    table.insert(lines, name .. ": " .. text)
  end
  stream:write(table.concat(lines, "\r\n") .. "\r\n\r\n" .. body)

  local function answer(problem) return true, nil, url .. ": " .. problem end

  return function()
    stream:poll()
    if stream.stage ~= "closed" then return nil end
    -- With HTTP/1.0, the answer ends with the connection.
    local status, text = stream:take(0):match("^HTTP/%d%.%d (%d+).-\r\n\r\n(.*)$")
    if not status then return answer(stream.problem) end
    if status:sub(1, 1) ~= "2" then
      return answer("HTTP status " .. status .. " " .. text:sub(1, 200))
    end
    local could, result = pcall(json.decode, text)
    if not could then return answer(result) end
    return true, result
  end
end

return http
