import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { CLIENT_OPCODES } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { faultyFront } from '../../test/support/faulty-front.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../control-issuer.ts'
import type { Credentials } from './client-parts.ts'
import { Squad } from './squad.ts'

const ROOMS = join(import.meta.dirname, '../rooms')
/** As a service has it that is told nothing else. */
const HEARTBEAT_MS = 10_000
const FAST = { per_second: 1000, offset: 0 }

/** A service that has no room for some: what comes is cut off, as often as was asked for, and then let through. */
class Door {
  /** So many more connections are cut off. */
  closed_for = 0
  refused = 0
  readonly #server: Server
  readonly #inside = new Set<Socket>()

  constructor(port: number) {
    this.#server = createServer((client) => {
      client.on('error', () => undefined)
      if (this.closed_for > 0) {
        this.closed_for -= 1
        this.refused += 1
        client.destroy()
        return
      }
      const node = connect(port, '127.0.0.1').on('error', () => undefined)
      client.pipe(node).pipe(client)
      client.on('close', () => node.destroy())
      this.#inside.add(client)
    })
  }

  async open(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Everybody is thrown out. */
  clear(): void {
    for (const client of this.#inside) client.destroy()
    this.#inside.clear()
  }

  close(): void {
    this.clear()
    this.#server.close()
  }
}

let service: TestService
let credentials: Credentials
let door: Door
let url: string
beforeAll(async () => {
  service = await startService({ rooms: await loadRooms(ROOMS) })
  credentials = await new ControlIssuer({
    control_url: service.control_url,
    control_token: undefined,
  }).issue()
})
afterAll(() => service.close())
beforeEach(async () => {
  door = new Door(Number(new URL(service.ws_url).port))
  url = await door.open()
})
afterEach(() => door.close())

const squadAt = (ws_url: string, clock = systemClock): Squad =>
  new Squad({ ws_urls: [ws_url], room_type: 'load', message: undefined, seed: 1 }, clock, new SeededRandom(1))

/** Looks until as many are online. */
async function untilOnline(squad: Squad, wanted: number): Promise<{ retries: number; resumes: number }> {
  const all = { retries: 0, resumes: 0 }
  for (;;) {
    const { online, counts, failures } = await squad.report()
    expect(failures).toEqual([])
    all.retries += counts.retries
    all.resumes += counts.resumes
    if (online === wanted) return all
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

describe('spectators', () => {
  it('try again when they are turned away, which is counted and no failure', async () => {
    door.closed_for = 7
    const squad = squadAt(url)
    await squad.watch([0, 1, 2, 3], FAST, credentials, 'load-0')
    const { counts, failures, online, timings } = await squad.report()
    expect({ refused: door.refused, retries: counts.retries, failures, online }).toEqual({
      refused: 7,
      retries: 7,
      failures: [],
      online: 4,
    })
    expect(counts).toMatchObject({ connects: 4, joins: 4, errors: 0 })
    // The waits are part of the time it took.
    expect(timings.connect!.count).toBe(4)
    await squad.close()
  })

  it('come back when they are cut off in the middle and turned away, and resume', async () => {
    const squad = squadAt(url)
    await squad.watch([0, 1, 2, 3], FAST, credentials, 'load-0')
    await squad.report()
    door.closed_for = 5
    door.clear()
    // They have noticed when the first is turned away.
    while (door.refused === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    expect(await untilOnline(squad, 4)).toEqual({ retries: 5, resumes: 4 })
    await squad.close()
  })

  it('begin anew when their session is lost, which is a failure', async () => {
    const front = await faultyFront(url, {
      // Whoever resumes asks for a session nobody has.
      to_node: (frame) => [frame[1] === CLIENT_OPCODES.hello ? forged(frame) : frame],
    })
    const squad = squadAt(front.ws_url)
    await squad.watch([0], FAST, credentials, 'load-0')
    await squad.report()
    await squad.cut(1)
    const { counts, failures, online } = await squad.report()
    expect(failures).toMatchObject([{ code: 'session_lost', count: 1 }])
    expect({ online, connects: counts.connects, resumes: counts.resumes }).toEqual({
      online: 1,
      connects: 1,
      resumes: 0,
    })
    await squad.close()
    front.close()
  })

  it('give up after half a minute, or when their session is not kept any longer', async () => {
    const clock = new FakeClock()
    const squad = squadAt(url, clock)
    const watched = squad.watch([0], FAST, credentials, 'load-0')
    await passUntil(clock, watched, 20)
    expect((await squad.report()).online).toBe(1)

    door.closed_for = Number.POSITIVE_INFINITY
    await passUntil(clock, squad.cut(1), 250)
    const lost = await squad.report()
    expect(lost.failures).toMatchObject([{ code: 'connection_lost', count: 1 }])
    expect(lost.failures[0]!.example).toMatch(/^spectator 0 did not come back within 60 s \(\d+ retries\)$/)

    await passUntil(clock, squad.watch([1], FAST, credentials, 'load-0'), 250)
    const refused = await squad.report()
    expect(refused.failures).toMatchObject([{ code: 'connection_failed', count: 1 }])
    expect(refused.failures[0]!.example).toMatch(
      /^spectator 1 got no connection within 30 s \(\d+ retries\)$/,
    )
    expect(refused.counts.retries).toBeGreaterThan(3)
    await squad.close()
  })

  it('leave a connection on which a service that hangs says nothing, and come back', async () => {
    const clock = new FakeClock()
    let hangs = false
    const pass = (frame: Uint8Array) => (hangs ? [] : [frame])
    const front = await faultyFront(service.ws_url, { to_client: pass, to_node: pass })
    const squad = squadAt(front.ws_url, clock)
    await squad.watch([0], FAST, credentials, 'load-0')
    hangs = true
    clock.advance(HEARTBEAT_MS)
    expect((await squad.report()).online).toBe(1)
    clock.advance(HEARTBEAT_MS)
    await expect.poll(async () => (await squad.report()).online).toBe(0)
    hangs = false
    const resumes = async (): Promise<number> => {
      clock.advance(100)
      return (await squad.report()).counts.resumes
    }
    await expect.poll(resumes).toBe(1)
    await squad.close()
    front.close()
  })
})

/** The clock goes on, in steps of so many milliseconds, while the sockets do what they do, until the work is done. */
async function passUntil(clock: FakeClock, work: Promise<void>, step_ms: number): Promise<void> {
  let done = false
  void work.then(() => {
    done = true
  })
  while (!done) {
    await new Promise((resolve) => setTimeout(resolve, 2))
    clock.advance(step_ms)
  }
}

/** A hello that resumes another session than it meant to; any other as it is. */
function forged(frame: Uint8Array): Uint8Array {
  const at = Buffer.from(frame).indexOf('ses_')
  if (at < 0) return frame
  const changed = Uint8Array.from(frame)
  changed[at + 4] = changed[at + 4] === 65 ? 66 : 65
  return changed
}
