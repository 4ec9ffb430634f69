--- Runs docs/protocol-scenarios.json against the client, in both subprotocols.
local Runner = require("tests.runner")
local support = require("tests.support")

--- True if a scenario has frames of MessagePack that have no form in JSON.
local function is_for_msgpack(scenario)
  for _, step in ipairs(scenario.steps) do
    if step.msgpack and not step.server then return true end
  end
  return false
end

--- Returns the number of failures.
return function()
  local tests = {}
  for number, scenario in ipairs(Runner.FILE.scenarios) do
    for _, codec in ipairs({ "json", "msgpack" }) do
      if codec == "msgpack" or not is_for_msgpack(scenario) then
        local name = ("%d %s %s, %s"):format(number, scenario.rule, scenario.name, codec)
        table.insert(tests, {
          name,
          function()
            local runner = Runner.new(codec)
            runner:run(Runner.FILE.starts[scenario.start] or {})
            runner:run(scenario.steps)
          end,
        })
      end
    end
  end
  return support.run("scenarios", tests)
end
