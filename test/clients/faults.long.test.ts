import { describe, expect, it } from 'vitest'
import { FAULTS } from '../conformance/client/faults.ts'
import { runProgram, runScript } from '../support/program.ts'
import { testedClients } from './clients.ts'

const SECONDS = 45

for (const client of testedClients()) {
  describe.runIf(client.runs)(`the client in ${client.name}`, () => {
    it('breaks no rule of the protocol while nodes of a cluster are killed and drained', async () => {
      const cluster = runProgram(['cluster', '--free-ports'])
      await cluster.said(/Type help/)
      const [, games = ''] = /play +(\S+)/.exec(cluster.output()) ?? []
      const nodes = [...cluster.output().matchAll(/node-\d (\d+)/g)].map(
        ([, port]) => `ws://127.0.0.1:${port}`,
      )
      const proxy = runScript('test/conformance/run.ts', [
        ...['--client', 'ws://127.0.0.1:0', '--dev', games, ...nodes.flatMap((node) => ['--cluster', node])],
        ...['--seconds', String(SECONDS), '--exec', client.command('bot')],
      ])
      expect(await proxy.ended, proxy.output()).toBe(0)
      for (const fault of FAULTS) expect(proxy.output()).toMatch(new RegExp(`\\b[1-9]\\d* ${fault}\\b`))
      cluster.child.stdin?.write('quit\n')
      expect(await cluster.ended).toBe(0)
    })
  })
}
