import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Case } from './conformance/case.ts'
import { cases } from './conformance/cases/index.ts'
import { main, runSuite } from './conformance/run.ts'
import { runScript } from './support/program.ts'
import { startService, type TestService } from './support/service.ts'

/** The protocol page, held against the real service by clients that were written from the page alone. */

const CASE_TIMEOUT_MS = 60_000
/** Short, so that the cases about the end of a session are over soon; above the 5 s a late token may take. */
const RESUME_TTL_SECONDS = 8
const HEARTBEAT_SECONDS = 2

/** To be called in a group of tests: a service for all of them. Gives what holds a case against it. */
function service(store: 'redis' | 'memory'): (one: Case) => Promise<void> {
  let started: TestService
  beforeAll(async () => {
    started = await startService({
      store,
      node: { sessionResumeTtl: RESUME_TTL_SECONDS, heartbeatSeconds: HEARTBEAT_SECONDS },
    })
  })
  afterAll(() => started?.close())
  return async (one) => {
    const { wsUrl, controlUrl } = started
    const { outcomes } = await runSuite({ ws_url: wsUrl, control_url: controlUrl, cases: [one] })
    for (const { problem } of outcomes) if (problem) throw problem
  }
}

describe.concurrent('the protocol, with the store in Redis', () => {
  const hold = service('redis')
  for (const one of cases.filter(({ kind }) => kind === 'quick')) {
    it(one.name, () => hold(one), CASE_TIMEOUT_MS)
  }
})

// Time passes alike on both stores.
describe.concurrent('what takes seconds, with the store in memory', () => {
  const hold = service('memory')
  for (const one of cases.filter(({ kind }) => kind !== 'quick')) {
    it(one.name, () => hold(one), CASE_TIMEOUT_MS)
  }
})

describe('the command', () => {
  const run = async (...args: string[]) => {
    const printed: string[] = []
    const code = await main(args, (text) => printed.push(text))
    return { code, text: printed.join('') }
  }

  it('ends with 0 and names what passed', async () => {
    const service = await startService()
    const { wsUrl, controlUrl } = service
    const words = [wsUrl, '--control', controlUrl, '--only', 'vectors: checksums']
    const program = runScript(`${import.meta.dirname}/conformance/run.ts`, words)
    expect(await program.ended).toBe(0)
    await service.close()
    expect(program.output()).toMatch(/^✓ vectors: checksums.*\n\n1 of 1 cases passed in .* s\.\n$/)
  })

  it('ends with 1 when a case fails, and says which sentence is broken', async () => {
    // A service without room types cannot give a seat to anyone.
    const service = await startService({ rooms: [] })
    const { code, text } = await run(
      service.wsUrl,
      '--control',
      service.controlUrl,
      '--only',
      'joined, then the snapshot (json)',
    )
    await service.close()
    expect(text).toContain('✗ rooms: joined, then the snapshot (json)')
    expect(text).toContain('expected by §2')
    expect(text).toContain('"code":"unknown_room_type"')
    expect(code).toBe(1)
  })

  it.each([
    { args: [], says: 'no address' },
    { args: ['http://127.0.0.1:4000'], says: 'begins with ws://' },
    { args: ['ws://127.0.0.1:4000', '--only', 'no such case'], says: 'no case has "no such case"' },
    { args: ['ws://127.0.0.1:4000', '--seed', 'x'], says: '--seed is a whole number' },
    { args: ['ws://127.0.0.1:4000', '--speed'], says: '--speed' },
    {
      args: ['ws://127.0.0.1:1'],
      says: 'no websocket at ws://127.0.0.1:1; start the service with `npm start`',
    },
  ])('ends with 2 for $args: $says', async ({ args, says }) => {
    const { code, text } = await run(...args)
    expect(text).toContain(says)
    expect(code).toBe(2)
  })

  it('ends with 2 when control does not answer', async () => {
    const service = await startService()
    const { code, text } = await run(service.wsUrl, '--control', 'http://127.0.0.1:1')
    await service.close()
    expect(text).toContain('name the control API with --control')
    expect(code).toBe(2)
  })
})
