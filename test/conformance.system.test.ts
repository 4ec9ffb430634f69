import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { cases, holds } from './conformance/run.ts'
import { startService, type TestService } from './support/cluster.ts'
import { runScript } from './support/program.ts'

const CASE_TIMEOUT_MS = 180_000
/** Short, so that cases about the end of a session are fast. Above the 5 s for a late token. */
const RESUME_TTL_SECONDS = 8
const HEARTBEAT_SECONDS = 2

/** Cases that wait, and those that read what the store keeps. The unit tests run all others with the store in memory. */
const stored = cases.filter(({ name, kind }) => kind !== 'quick' || /^(resume|sessions|tokens): /.test(name))

describe.concurrent('the protocol, with the store in Redis', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService({
      store: 'redis',
      node: { sessionResumeTtl: RESUME_TTL_SECONDS, heartbeatSeconds: HEARTBEAT_SECONDS },
    })
  })
  afterAll(() => service?.close())

  for (const one of stored) it(one.name, () => holds(one, service), CASE_TIMEOUT_MS)
})

describe('the command', () => {
  const run = async (...args: string[]) => {
    const program = runScript(`${import.meta.dirname}/conformance/run.ts`, args)
    return { code: await program.ended, text: program.output() }
  }

  it('exits with 0 if all cases pass, and with 1 and the broken rule if a case fails', async () => {
    // A service without room types refuses each join.
    const { wsUrl, controlUrl, close } = await startService({ rooms: [] })
    onTestFinished(close)
    const held = await run(wsUrl, '--control', controlUrl, '--only', 'welcome answers hello (json)')
    expect(held.text).toMatch(/^✓ handshake: welcome .*\n\n1 of 1 cases passed in .* s\.\n$/)
    expect(held.code).toBe(0)
    const broken = await run(wsUrl, '--control', controlUrl, '--only', 'joined, then the snapshot (json)')
    expect(broken.text).toMatch(/✗ rooms: joined, [^\n]*\n +expected by R8.*"code":"unknown_room_type"/s)
    expect(broken.code).toBe(1)
    const mute = await run(wsUrl, '--control', 'http://127.0.0.1:1')
    expect(mute.text).toContain('name the control API with --control')
    expect(mute.code).toBe(2)
  })

  it.each([
    { args: [], says: 'no address' },
    { args: ['ws://127.0.0.1:4000', '--only', 'no such case'], says: 'no case has "no such case"' },
    { args: ['ws://127.0.0.1:1'], says: 'no websocket at ws://127.0.0.1:1; start the service' },
  ])('exits with 2 for $args: $says', async ({ args, says }) => {
    const { code, text } = await run(...args)
    expect(text).toContain(says)
    expect(code).toBe(2)
  })
})
