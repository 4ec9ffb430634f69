import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Scenarios } from '../docs/scenarios/index.ts'
import type { Scenario, Step } from '../docs/scenarios/script.ts'
import { sleep } from '../shared/clock.ts'
import type { Json, JsonObject } from '../shared/json.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { play } from '../test/support/client/play.ts'
import { type Client, connect, type ListedRoom, type Room, RoomfulError } from './index.ts'

const {
  client: configuration,
  starts,
  scenarios,
} = JSON.parse(readFileSync(new URL('../docs/protocol-scenarios.json', import.meta.url), 'utf8')) as Scenarios

/** Longest wait for an action of the client that a step expects. It is longer than any backoff. */
const PATIENCE_MS = 15_000
const STEP_MS = 250
/** Codes of the SDK for messages of a seat that has ended. */
const UNKNOWN = new Set(['resume_failed', 'not_in_room'])

/** Runs the SDK between an application and a server that follow a scenario. */
class Runner {
  readonly #clock = new FakeClock()
  readonly #scene
  readonly #rooms = new Map<string, Room>()
  readonly #outcomes = new Map<string, Json>()
  readonly #events = new Map<string, Json[]>()
  /** Room ids of each list, by name. */
  readonly #lists = new Map<string, string[][]>()
  readonly #watches = new Map<string, () => void>()
  readonly #seats = new Map<string, string>()
  readonly #eventNames: ReadonlySet<string>
  /** Number of read messages of each socket. */
  readonly #read: number[] = []
  #client: Client | undefined
  #status = 'connecting'
  #tokens = 0
  #tokenDelayMs = 0
  #current = 0
  #waitedMs = 0

  constructor(steps: readonly Step[]) {
    const events = steps.flatMap(
      ({ expect }) => ((expect as JsonObject | undefined)?.events ?? []) as [string, Json][],
    )
    this.#eventNames = new Set(events.map(([name]) => name))
    this.#scene = play(
      {
        projectId: configuration.project_id,
        getToken: () => this.#token(),
        token: undefined as never,
        reroute: configuration.hosts,
        connectTimeoutMs: 120_000,
      },
      this.#clock,
    )
    const { server } = this.#scene
    server.onDial = server.onHello = server.onJoin = server.onLeave = server.onPing = () => {}
  }

  async run(step: Step): Promise<void> {
    const { server } = this.#scene
    const on = Number(step.on ?? this.#current) - 1
    for (let times = Number(step.do === undefined ? 0 : (step.times ?? 1)); times > 0; times -= 1)
      this.#do(String(step.do), step)
    if (step.open !== undefined) await this.#open(step)
    if (step.client !== undefined) await this.#hear(step.client as JsonObject | null, on)
    if (step.at_most !== undefined) await this.#passOver(Number(step.at_most), on)
    for (const hex of (step.msgpack ?? []) as string[])
      server.sockets[on]!.deliver(Uint8Array.from(Buffer.from(hex, 'hex')))
    if (step.close !== undefined) server.sockets[on]!.end(Number(step.close))
    await this.#scene.pass(Number(step.wait_ms ?? 1))
    if (step.closed !== undefined)
      await this.#until(() => server.sockets[Number(step.closed) - 1]!.closed, 'a close')
    if (step.expect !== undefined) this.#expect(step.expect as JsonObject)
  }

  end(): void {
    this.#client?.close()
  }

  #token(): string | Promise<string> {
    this.#tokens += 1
    const token = `token-${this.#tokens}`
    return this.#tokenDelayMs === 0 ? token : sleep(this.#clock, this.#tokenDelayMs).then(() => token)
  }

  #do(call: string, step: Step): void {
    const roomId = String(step.room_id)
    const room = this.#rooms.get(roomId)
    if (call === 'connect') void this.#connect(String(step.address ?? configuration.address))
    else if (call === 'goodbye') this.#client!.close()
    else if (call === 'token_delay') this.#tokenDelayMs = Number(step.ms)
    else if (call === 'join')
      this.#outcome(
        step,
        this.#joined(
          this.#client!.join(String(step.room_type), step.options as JsonObject, {
            watch: step.watch === true,
          }),
        ),
      )
    else if (call === 'join_by_code')
      this.#outcome(step, this.#joined(this.#client!.joinByCode(String(step.code))))
    else if (call === 'join_or_create')
      this.#outcome(
        step,
        this.#joined(
          this.#client!.joinOrCreate(
            String(step.room_type),
            step.options as JsonObject,
            step.query as JsonObject,
          ),
        ),
      )
    else if (call === 'list')
      this.#outcome(
        step,
        this.#client!.rooms(String(step.room_type), step.query as JsonObject).then((rooms) =>
          this.#listed(step, rooms),
        ),
      )
    else if (call === 'watch')
      this.#watches.set(
        String(step.as),
        this.#client!.watchRooms(String(step.room_type), step.query as JsonObject, (rooms) =>
          this.#listed(step, rooms),
        ),
      )
    else if (call === 'end_watch') this.#watches.get(String(step.as))!()
    else if (call === 'leave') this.#outcome(step, room!.leave())
    else if (step.ref === false) room!.send(String(step.type), step.data!, { reliable: false })
    else if (step.request === true) this.#outcome(step, room!.request(String(step.type), step.data!))
    else this.#outcome(step, room!.send(String(step.type), step.data!))
  }

  async #connect(address: string): Promise<void> {
    const client = await connect(address, this.#scene.options)
    this.#client = client
    this.#status = client.status
    client.onConnectionChange((status) => {
      this.#status = status
    })
  }

  #listed({ as }: Step, rooms: readonly ListedRoom[]): void {
    const ids = rooms.map(({ roomId }) => roomId)
    this.#lists.set(String(as), [...(this.#lists.get(String(as)) ?? []), ids])
  }

  async #joined(joining: Promise<Room>): Promise<void> {
    const room = await joining
    this.#rooms.set(room.id, room)
    this.#events.set(room.id, [])
    this.#seats.set(room.id, 'joined')
    room.onLeave((reason) => this.#seats.set(room.id, reason))
    for (const name of this.#eventNames)
      room.on(name, (data: Json) => void this.#events.get(room.id)!.push([name, data]))
  }

  #outcome({ as }: Step, promise: Promise<unknown>): void {
    const name = String(as)
    this.#outcomes.set(name, 'pending')
    promise.then(
      (reply) =>
        this.#outcomes.set(
          name,
          reply === undefined || typeof reply !== 'object' ? 'done' : { reply: reply as Json },
        ),
      (error: unknown) => {
        const code = error instanceof RoomfulError ? error.code : String(error)
        this.#outcomes.set(name, UNKNOWN.has(code) ? 'unknown' : { error: code })
      },
    )
  }

  async #open({ open, url, refuse }: Step): Promise<void> {
    const { sockets } = this.#scene.server
    const before = this.#clock.monotonic()
    await this.#until(() => sockets.length >= Number(open), `socket ${open}`)
    this.#waitedMs += this.#clock.monotonic() - before
    const socket = sockets[Number(open) - 1]!
    this.#current = Number(open)
    this.#read[this.#current - 1] = 0
    if (url !== undefined) expect(socket.url).toBe(url)
    if (refuse) socket.end(1006)
    else socket.accept()
  }

  /** Compares the next message on a socket; null: there is none. */
  async #hear(expected: JsonObject | null, on: number): Promise<void> {
    const next = () => {
      const { said } = this.#scene.server.sockets[on]!
      if (expected?.t !== 'ping') while (said[this.#read[on]!]?.t === 'ping') this.#read[on]! += 1
      return said[this.#read[on]!]
    }
    if (expected === null) {
      expect(next()).toBe(undefined)
      return
    }
    await this.#until(() => next() !== undefined, JSON.stringify(expected))
    expect(next()).toMatchObject(expected)
    this.#read[on]! += 1
  }

  /** Passes over what the client has sent on a socket: without pings, at most `count` messages. */
  async #passOver(count: number, on: number): Promise<void> {
    await this.#scene.pass(1)
    const { said } = this.#scene.server.sockets[on]!
    expect(said.slice(this.#read[on]).filter(({ t }) => t !== 'ping').length).toBeLessThanOrEqual(count)
    this.#read[on] = said.length
  }

  /** Advances the clock until `done`. Throws after `PATIENCE_MS`. */
  async #until(done: () => boolean, what: string): Promise<void> {
    for (let waited = 0; !done(); waited += STEP_MS) {
      if (waited > PATIENCE_MS) throw new Error(`the client does not come to ${what}`)
      await this.#scene.pass(waited === 0 ? 1 : STEP_MS)
    }
  }

  #expect(what: JsonObject): void {
    const id = String(what.room_id ?? [...this.#rooms.keys()][0])
    const room = this.#rooms.get(id)
    if ('state' in what) expect(room?.state).toEqual(what.state)
    if ('members' in what) {
      const members = (what.members as JsonObject[]).map(({ member_id, ...member }) => ({
        id: member_id,
        spectator: false,
        ...member,
      }))
      const sorted = (list: readonly { id?: Json | undefined }[]) =>
        [...list].sort((a, b) => (String(a.id) < String(b.id) ? -1 : 1))
      expect(sorted(room!.members)).toEqual(sorted(members))
    }
    if ('events' in what) expect(this.#events.get(id)!.splice(0)).toEqual(what.events)
    if ('seat' in what) expect(this.#seats.get(id)).toBe(what.seat)
    if ('role' in what) expect(room?.spectator ? 'spectator' : 'player').toBe(what.role)
    if ('spectators' in what) expect(room?.spectators).toBe(what.spectators)
    if ('waited_ms' in what) {
      const [least, most] = what.waited_ms as [number, number]
      expect(this.#waitedMs).toBeGreaterThanOrEqual(least)
      expect(this.#waitedMs).toBeLessThanOrEqual(most)
      this.#waitedMs = 0
    }
    if ('sockets' in what) expect(this.#scene.server.sockets).toHaveLength(Number(what.sockets))
    if ('status' in what) expect(this.#status).toBe(what.status === 'ended' ? 'closed' : what.status)
    for (const [name, lists] of Object.entries((what.lists ?? {}) as JsonObject))
      expect([name, this.#lists.get(name)]).toEqual([name, lists])
    for (const [name, outcome] of Object.entries((what.outcomes ?? {}) as JsonObject))
      expect([name, this.#outcomes.get(name)]).toEqual([name, outcome])
  }
}

const stepsOf = ({ start, steps }: Scenario): readonly Step[] => [
  ...(start === undefined ? [] : starts[start]!),
  ...steps,
]

describe.each([1, 2, 3, 4, 5, 6, 7])('scenarios of level %i', (level) => {
  test.each(scenarios.filter((scenario) => scenario.level === level))('$rule: $name', async (scenario) => {
    const steps = stepsOf(scenario)
    const runner = new Runner(steps)
    for (const [at, step] of steps.entries())
      await runner.run(step).catch((error: unknown) => {
        throw new Error(
          `step ${at}, ${JSON.stringify(step)}: ${error instanceof Error ? error.message : error}`,
        )
      })
    runner.end()
  })
})

describe('docs/protocol.md', () => {
  const page = readFileSync(new URL('../docs/protocol.md', import.meta.url), 'utf8')
  /** Rules by level, as the sections have them. */
  const rules = page
    .split(/^## /m)
    .filter((section) => section.startsWith('Level '))
    .map((section) => [...section.matchAll(/^- \*\*R(\d+)\./gm)].map(([, number]) => Number(number)))

  test('numbers its rules without gaps, and states which of them each level has', () => {
    expect(rules.flat()).toEqual(rules.flat().map((_, index) => index + 1))
    const said = [...page.matchAll(/^\| \[\d \w+\].*\| R(\d+)–R(\d+) \|$/gm)]
    expect(said.map(([, ...numbers]) => numbers.map(Number))).toEqual(
      rules.map((numbers) => [numbers[0], numbers.at(-1)]),
    )
  })

  test('has a scenario for each rule', () => {
    const tested = new Set(scenarios.map(({ rule }) => Number(rule.slice(1))))
    expect(rules.flat().filter((rule) => !tested.has(rule))).toEqual([])
    for (const { name, rule, level } of scenarios)
      expect(rules[level - 1], name).toContain(Number(rule.slice(1)))
  })
})
