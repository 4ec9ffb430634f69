--- Compares README.md with the files.
local support = require("tests.support")

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function count_lines(path)
  local _, count = read(path):gsub("\n", "")
  return count
end

--- Returns the number of failures.
return function()
  local test = {
    "the number of lines of each file",
    function()
      local total, readme = 0, read("README.md")
      for name, lines in readme:gmatch("\n| `([%w_]+%.lua)` | (%d+) |") do
        support.equal(count_lines("roomful/" .. name), tonumber(lines), name)
        total = total + lines
      end
      support.equal(readme:match("has ([%d,]+) lines"):gsub(",", ""), tostring(total), "the sum")
    end,
  }
  return support.run("readme", { test })
end
