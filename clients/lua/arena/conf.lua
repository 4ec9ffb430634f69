function love.conf(t)
  t.identity = "roomful-arena"
  t.window.title = "Arena"
  t.window.width, t.window.height = 700, 700
  t.window.resizable = true
end
