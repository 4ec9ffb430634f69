import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { report } from '../conformance/client/command.ts'
import { ProxiedService, strikeAll } from '../conformance/client/proxied.ts'
import { foundFor, programOr } from '../support/debian-package.ts'
import { startCommand } from '../support/program.ts'
import { testedClients } from './clients.ts'

let service: ProxiedService
beforeAll(async () => {
  service = await ProxiedService.start()
})
afterAll(() => service?.close())

const mypy = foundFor('the types of the client in Python', () => programOr('mypy'))

it.runIf(mypy)('the types of the client in Python satisfy mypy', async () => {
  const run = startCommand(mypy!, [], {}, 'clients/python')
  expect(await run.ended, run.output()).toBe(0)
})

for (const client of testedClients()) {
  describe.runIf(client.runs)(`the client in ${client.name}`, () => {
    it('passes all vectors and scenarios of the protocol', async () => {
      const tests = client.start('tests')
      onTestFinished(() => void tests.child.kill())
      expect(await tests.ended, tests.output()).toBe(0)
    })

    it('breaks no rule of the protocol under any fault of the proxy', async () => {
      const proxy = await service.proxy()
      const bot = client.start('bot', {
        ROOMFUL_URL: proxy.url,
        ROOMFUL_PROJECT_ID: service.projectId,
        ROOMFUL_TOKEN_URL: `${proxy.tokenUrl}player`,
      })
      onTestFinished(() => void bot.child.kill())
      await strikeAll(proxy)
      await proxy.stop()
      expect(await bot.ended, bot.output()).toBe(0)
      expect(report(proxy)).toMatch(/\nok\n$/)
      expect(proxy.server_faults).toEqual([])
    })
  })
}
