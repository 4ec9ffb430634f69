--- A TCP connection, with TLS if wanted, that never blocks: call `poll` often.
local socket = require("socket")
local Stream = {}
Stream.__index = Stream

local SECONDS_PER_ADDRESS = 3
local READ_BYTES, MOST_READS = 65536, 16
-- Files in which systems keep the certificates of authorities.
local CA_FILES = {
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/cert.pem",
}
-- Problems of a call that only has to wait.
local WAITS = { timeout = true, wantread = true, wantwrite = true }

--- Returns the parts of an address: {scheme, host, port, path, tls}. `plain` is the scheme without
--- TLS: `ws` or `http`. Raises an error for any other text.
function Stream.parse(url, plain)
  local scheme, authority, path = url:match("^(%a+)://([^/?#]+)([^#]*)")
  scheme, authority = (scheme or ""):lower(), authority or ""
  local host, port = authority:match("^%[(.-)%]:?(%d*)$")
  if not host then
    host, port = authority:match("^([^:@]+):?(%d*)$")
  end
  local tls = scheme == plain .. "s"
  if not host or scheme ~= plain and not tls then
    error(("the address is %q: use one such as %s://localhost:4000"):format(url, plain), 0)
  end
  if path:sub(1, 1) ~= "/" then path = "/" .. path end
  port = tonumber(port) or tls and 443 or 80
  return { scheme = scheme, host = host:lower(), port = port, path = path, tls = tls }
end

--- Starts to connect. The look-up of a host name blocks until DNS answers. `stage` is `connecting`,
--- `handshaking`, `open`, or `closed`: then `problem` says why. `tls`: {ca_file}, and the context
--- that the first connection makes for all, because it reads the certificates.
function Stream.open(address, tls)
  local self = { address = address, stage = "connecting", _in = {}, _in_size = 0, _out = "" }
  setmetatable(self, Stream)
  if address.tls then
    local problem = self:_prepare_tls(tls)
    if problem then return self:close(problem) end
  end
  local found, problem = socket.dns.getaddrinfo(address.host)
  self._addresses = found or {}
  self:_connect_next(problem)
  return self
end

--- Makes the context of TLS, if there is none yet. Returns what is missing.
function Stream:_prepare_tls(tls)
  local found, ssl = pcall(require, "ssl")
  if not found then
    return "TLS needs the Lua module ssl: luarocks install luasec, apt install lua-sec, or use no TLS"
  end
  local how = { mode = "client", protocol = "any", verify = "peer", options = "all" }
  how.cafile = tls.ca_file
  for _, path in ipairs(CA_FILES) do
    if not how.cafile and io.open(path) then how.cafile = path end
  end
  if not how.cafile then return "no certificates of authorities: set the option ca_file" end
  local problem
  if not tls.context then
    tls.context, problem = ssl.newcontext(how)
  end
  self._ssl, self._context = ssl, tls.context
  return problem and ("TLS: %s: %s"):format(how.cafile, problem)
end

function Stream:close(problem)
  if self.stage ~= "closed" then
    self.stage, self.problem = "closed", problem
    if self._socket then self._socket:close() end
  end
  return self
end

--- Tries the next address of the host, such as IPv4 after IPv6.
function Stream:_connect_next(problem)
  local found = table.remove(self._addresses, 1)
  if not found then
    local where = ("%s port %d"):format(self.address.host, self.address.port)
    return self:close(("no connection to %s: %s"):format(where, problem))
  end
  if self._socket then self._socket:close() end
  self._socket = found.family == "inet6" and socket.tcp6() or socket.tcp()
  self._socket:settimeout(0)
  self._socket:connect(found.addr, self.address.port)
  self._ip, self._stop_at = found.addr, socket.gettime() + SECONDS_PER_ADDRESS
end

function Stream:_connecting()
  local _, writable = socket.select(nil, { self._socket }, 0)
  if not writable[1] then
    if socket.gettime() > self._stop_at then self:_connect_next("no answer") end
  elseif not self._socket:getpeername() then
    local _, problem = self._socket:connect(self._ip, self.address.port)
    self:_connect_next(problem)
  else
    self._socket:setoption("tcp-nodelay", true)
    self.stage = "open"
    if self.address.tls then self:_start_tls() end
  end
end

function Stream:_start_tls()
  self._socket, self.stage = assert(self._ssl.wrap(self._socket, self._context)), "handshaking"
  self._socket:settimeout(0)
  self._socket:sni(self.address.host)
end

--- Returns true if a certificate is for this host. lua-sec checks only who has signed it.
local function is_for(certificate, host)
  local names = certificate:extensions()["2.5.29.17"] or {}
  for _, name in ipairs(names.dNSName or {}) do
    local rest = name:lower():match("^%*(%..+)$")
    if name:lower() == host or rest and rest == host:match("^[^.]+(%..+)$") then return true end
  end
  for _, ip in ipairs(names.iPAddress or {}) do
    if ip == host then return true end
  end
  return false
end

function Stream:_handshaking()
  local done, problem = self._socket:dohandshake()
  if not done then
    if not WAITS[problem] then self:close("TLS: " .. problem .. " (check port and ca_file)") end
  elseif is_for(self._socket:getpeercertificate(), self.address.host) then
    self.stage = "open"
  else
    self:close("TLS: the certificate is not for " .. self.address.host)
  end
end

function Stream:_read()
  for _ = 1, MOST_READS do
    local data, problem, partial = self._socket:receive(READ_BYTES)
    self:_put(data or partial or "", #self._in + 1)
    if problem and not WAITS[problem] then return self:close(problem) end
    if problem then return end
  end
end

function Stream:_write()
  if self._out == "" then return end
  local last, problem, partial = self._socket:send(self._out)
  if problem and not WAITS[problem] then return self:close(problem) end
  self._out = self._out:sub((last or partial) + 1)
end

--- Connects, reads and writes as much as is possible now.
function Stream:poll()
  if self.stage == "connecting" then self:_connecting() end
  if self.stage == "handshaking" then self:_handshaking() end
  if self.stage == "open" then self:_read() end
  if self.stage == "open" then self:_write() end
end

function Stream:_put(data, place)
  if data == "" then return end
  table.insert(self._in, place, data)
  self._in_size = self._in_size + #data
end

--- Returns what has arrived, if this is `least` bytes or more; otherwise an empty text.
function Stream:take(least)
  if self._in_size < least then return "" end
  local data = table.concat(self._in)
  self._in, self._in_size = {}, 0
  return data
end

--- Puts the rest of `take` back.
function Stream:put_back(data) self:_put(data, 1) end

--- Writes data, now or in a later `poll`.
function Stream:write(data)
  self._out = self._out .. data
  if self.stage == "open" then self:_write() end
end

return Stream
