--- Operations on 32-bit integers. LuaJIT and LÖVE have them; plain Lua 5.1 may not.
local found, bits = pcall(require, "bit")

if not found then
  bits = {}

  function bits.tobit(a) return a % 2 ^ 32 end

  function bits.rshift(a, places) return math.floor(a / 2 ^ places) end

  function bits.bxor(a, b)
    local result, place = 0, 1
    while a > 0 or b > 0 do
      if a % 2 ~= b % 2 then result = result + place end
      a, b, place = math.floor(a / 2), math.floor(b / 2), place * 2
    end
    return result
  end
end

return bits
