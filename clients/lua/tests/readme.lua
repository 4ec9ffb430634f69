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

local README = read("README.md")

local function has_the_lines_of_each_file()
  local total = 0
  for name, lines in README:gmatch("\n| `([%w_]+%.lua)` | (%d+) |") do
    support.equal(count_lines("roomful/" .. name), tonumber(lines), name)
    total = total + lines
  end
  support.equal(README:match("has ([%d,]+) lines"):gsub(",", ""), tostring(total), "the sum")
end

local function has_code_that_compiles()
  local count = 0
  for code in README:gmatch("\n```lua\n(.-)\n```") do
    assert(loadstring(code))
    count = count + 1
  end
  support.equal(count, 3, "the number of examples")
end

--- Returns the number of failures.
return function()
  return support.run("readme", {
    { "the lines of each file", has_the_lines_of_each_file },
    { "code that compiles", has_code_that_compiles },
  })
end
