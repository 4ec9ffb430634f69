--- Runs all tests, in this folder: luajit test.lua
package.path = "./?.lua;./?/init.lua;" .. package.path
local failed = 0
for _, name in ipairs({ "vectors", "scenarios", "promises", "sockets", "readme" }) do
  failed = failed + require("tests." .. name)()
end
os.exit(failed == 0 and 0 or 1)
