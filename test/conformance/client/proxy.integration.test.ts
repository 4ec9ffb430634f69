import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { report } from './command.ts'
import { ConformancePlayer } from './player.ts'
import { PATIENT, ProxiedService, strikeAll } from './proxied.ts'
import type { FaultProxy } from './proxy.ts'

let service: ProxiedService
beforeAll(async () => {
  service = await ProxiedService.start()
})
afterAll(() => service?.close())

type Message = Record<string, unknown> & { t: string }

/** A JSON client that a test controls step by step. It can break the rules. */
class ScriptedClient {
  session: Message | undefined
  heard: Message[] = []
  /** The previous connection. */
  before: WebSocket | undefined
  private socket!: WebSocket
  private requests = 0
  private readonly key = crypto.randomUUID()
  private readonly proxy: FaultProxy

  constructor(proxy: FaultProxy) {
    this.proxy = proxy
  }

  get room(): string {
    return `counter:${this.key}`
  }

  /** Opens a connection. The previous connection stays open. */
  async open(url = this.proxy.url): Promise<void> {
    this.before = this.socket
    this.heard = []
    this.socket = new WebSocket(url, 'roomful.v1.json')
    this.socket.on('message', (data) => this.heard.push(JSON.parse(data.toString())))
    await new Promise((resolve, reject) => this.socket.once('open', resolve).once('error', reject))
  }

  say(t: string, fields: object = {}, socket = this.socket): void {
    socket.send(JSON.stringify({ t, ...fields }))
  }

  /** Waits for a message `t` on this connection. Returns the first or the last. */
  hear(t: string, which: 'first' | 'last' = 'first'): Promise<Message> {
    return vi.waitFor(
      () => {
        const message = this.heard[which === 'first' ? 'find' : 'findLast']((one) => one.t === t)
        if (!message) throw new Error(`no ${t} in ${JSON.stringify(this.heard)}`)
        return message
      },
      { ...PATIENT, interval: 5 },
    )
  }

  async begin({ ping = true } = {}): Promise<void> {
    await this.open()
    const { token } = (await (await fetch(`${this.proxy.tokenUrl}ada`)).json()) as { token: string }
    this.say('hello', { project_id: service.projectId, token })
    this.session = await this.hear('welcome')
    if (ping) this.say('ping', { at: 0 })
  }

  async join(): Promise<void> {
    this.requests += 1
    this.say('join', { request_id: this.requests, room_type: 'counter', options: { key: this.key } })
    await this.hear('state.snapshot', 'last')
  }

  async seated(): Promise<this> {
    await this.begin()
    await this.join()
    return this
  }

  act(ref?: number, settled?: number, by = 1): void {
    this.say('message', { room_id: this.room, type: 'inc', data: { by }, ref, settled })
  }

  async resume(more: object = {}, session = this.session!): Promise<void> {
    const room = { room_id: this.room, member_id: this.member, ...this.position, settled: 0, ...more }
    await this.open()
    const { session_id: sessionId, resume_token: resumeToken } = session
    const resume = { session_id: sessionId, resume_token: resumeToken, rooms: [room] }
    this.say('hello', { project_id: service.projectId, resume })
  }

  async resumed(more: object = {}): Promise<void> {
    await this.resume(more)
    this.session = await this.hear('welcome')
    this.say('ping', { at: 0 })
  }

  /** Stores its position, and breaks the connection. Resolves when the proxy has seen that. */
  async cut(): Promise<void> {
    this.storePosition()
    const before = this.proxy.connections
    this.socket.terminate()
    await vi.waitFor(() => expect(this.proxy.connections).toBeLessThan(before), { ...PATIENT, interval: 5 })
  }

  storePosition(): void {
    const states = this.heard.filter(({ t }) => /^state\./.test(t))
    const epoch = states.findLast((state) => state.epoch !== undefined)?.epoch
    if (epoch !== undefined) this.position = { epoch, seq: states.at(-1)!.seq }
    const joined = this.heard.find(({ t }) => t === 'joined')
    if (joined) this.member = joined.member_id
  }

  closed(): Promise<unknown> {
    return new Promise((resolve) => this.socket.once('close', resolve))
  }

  private position: object = {}
  private member: unknown
}

/** Mistakes, each with a client that makes it, and the titles of the broken rules. */
const MISTAKES: Record<
  string,
  { rules: string[]; does: (client: ScriptedClient, proxy: FaultProxy) => Promise<unknown> }
> = {
  'sends no ping after welcome': { rules: ['Heartbeat'], does: (client) => client.begin({ ping: false }) },
  'keeps a silent connection': {
    rules: ['Heartbeat'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strike('silence')
    },
  },
  'requests a resync without a cause': {
    rules: ['Ask'],
    does: async (client) => {
      await client.seated()
      client.say('state.resync', { room_id: client.room, reason: 'sequence' })
    },
  },
  'ignores a gap': {
    rules: ['Ask'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strikeFrame('lose')
      client.act()
      await vi.waitFor(() => expect(proxy.struck.get('lose')).toBe(1), 180_000)
      client.act()
    },
  },
  'ignores a wrong checksum': {
    rules: ['Ask'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strikeFrame('spoil')
      client.act()
    },
  },
  'requests a resync twice': {
    rules: ['Ask'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strikeFrame('spoil')
      client.act()
      await client.hear('state.patch')
      for (const reason of ['checksum', 'checksum'])
        client.say('state.resync', { room_id: client.room, reason })
    },
  },
  'sends a ref again with other data': {
    rules: ['Keep'],
    does: async (client) => {
      await client.seated()
      client.act(1, 0)
      await client.cut()
      await client.resumed()
      client.act(1, 0, 2)
    },
  },
  'does not send its messages again': {
    rules: ['Keep'],
    does: async (client, proxy) => {
      await client.seated()
      const closed = client.closed()
      proxy.strike('cut')
      client.act(1, 0)
      await closed
      client.storePosition()
      await client.resumed()
    },
  },
  'skips a ref, and resumes after the 4000': {
    rules: ['Ref', 'Close codes'],
    does: async (client) => {
      await client.seated()
      client.storePosition()
      client.act(2, 0)
      await client.closed()
      await client.resume()
    },
  },
  'sends a settled above the outcomes that it can know': {
    rules: ['Settled'],
    does: async (client) => {
      await client.seated()
      client.act(1, 0)
      client.act(2, 1)
    },
  },
  'resumes with a used token': {
    rules: ['Resume'],
    does: async (client) => {
      await client.seated()
      const { session } = client
      await client.cut()
      await client.resumed()
      await client.hear('pong')
      await client.cut()
      await client.resume({}, session)
    },
  },
  'resumes at a position that it never had': {
    rules: ['Listed rooms'],
    does: async (client) => {
      await client.seated()
      await client.cut()
      await client.resume({ seq: 99 })
    },
  },
  'does not resume after 41xx': {
    rules: ['Resume'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strike('close')
    },
  },
  'sends a message and a resume after its goodbye': {
    rules: ['Goodbye', 'Goodbye'],
    does: async (client) => {
      await client.seated()
      client.say('goodbye')
      client.say('ping', { at: 1 })
      await client.cut()
      await client.resume()
    },
  },
  'closes its connection before it moves': {
    rules: ['Change over'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strike('move')
      await client.hear('move')
      await client.cut()
      await client.resumed()
    },
  },
  'sends a message on the connection that it has moved from': {
    rules: ['Change over'],
    does: async (client, proxy) => {
      await client.seated()
      proxy.strike('move')
      const { in_ms: inMs } = await client.hear('move')
      await sleep(inMs as number)
      client.say('move')
      client.say('ping', { at: 1 })
    },
  },
}

describe('the conformance proxy', () => {
  it.each(Object.entries(MISTAKES))(
    'names the broken rule of a client that %s',
    async (_, { rules, does }) => {
      const proxy = await service.proxy({ patience_ms: 300, return_ms: 600 })
      const client = new ScriptedClient(proxy)
      await does(client, proxy)
      const { mistakes } = proxy.judge
      await vi.waitFor(() => expect(mistakes.length).toBeGreaterThanOrEqual(rules.length), {
        timeout: 60_000,
      })
      expect(mistakes.slice(0, rules.length).map(({ rule }) => rule.text)).toEqual(
        rules.map((title) => expect.stringMatching(`^R\\d+\\. ${title}\\. `)),
      )
      expect(report(proxy)).toContain(mistakes[0]!.what)
    },
  )

  it('has tokens for the player of `dev`', async () => {
    const proxy = await service.proxy()
    const client = await connect(proxy.url, { dev: 'ada' })
    const room = await client.join('counter', { key: 'of-ada' })
    expect(room.members.map(({ sub }) => sub)).toEqual(['ada'])
    client.close()
  })

  it('finds no mistake of the SDK under any fault', async () => {
    const proxy = await service.proxy()
    // 0: no pause before a new connection.
    const random = {
      bytes: (length: number) => crypto.getRandomValues(new Uint8Array(length)),
      float: () => 0,
    }
    const players = await Promise.all(
      ['ada', 'bob'].map((name) => ConformancePlayer.join(proxy.url, `${proxy.tokenUrl}${name}`, { random })),
    )
    let over = false
    const playing = players.map(async (player) => {
      while (!over) {
        await player.act()
        await sleep(10)
      }
    })
    await strikeAll(proxy)
    over = true
    await Promise.all(playing)
    const count = players.reduce((sum, { counted }) => sum + counted, 0)
    for (const { counter } of players)
      await vi.waitFor(() => expect(counter.state).toEqual({ count }), PATIENT)
    await proxy.stop()
    expect(report(proxy)).toMatch(/\nok\n$/)
    expect(proxy.server_faults).toEqual([])
  })
})
