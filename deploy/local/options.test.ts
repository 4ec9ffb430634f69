import { expect, it } from 'vitest'
import { parseOptions } from './options.ts'

const DEFAULT = { nodes: 3, controls: 2, balancer: 'auto', freePorts: false, advertise: true }

it('starts three nodes and two control processes where nothing is said', () => {
  expect(parseOptions([])).toEqual({ kind: 'run', options: DEFAULT })
})

it('takes counts, a load balancer and free ports', () => {
  expect(parseOptions(['--nodes', '5', '--controls=1', '--balancer', 'builtin', '--free-ports'])).toEqual({
    kind: 'run',
    options: { nodes: 5, controls: 1, balancer: 'builtin', freePorts: true, advertise: true },
  })
  expect(parseOptions(['-h'])).toEqual({ kind: 'help' })
})

it.each([
  [['--nodes', '10'], '--nodes is "10"; it may be: 1 to 9'],
  [['--controls', 'two'], '--controls is "two"'],
  [['--balancer', 'nginx'], '--balancer is "nginx"; it may be: auto, haproxy, builtin'],
  [['--node', '3'], '--node'],
  [['kill'], 'kill'],
])('%j is refused, and told why', (words, reason) => {
  expect(parseOptions(words)).toMatchObject({ kind: 'mistake', message: expect.stringContaining(reason) })
})
