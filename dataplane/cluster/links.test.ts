import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { MOMENT_MS } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type Bus, StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { roomAddress } from '../traffic.ts'
import type { PeerMessage } from './envelope.ts'
import { NodeLinks, nodeChannel } from './links.ts'
import { CLUSTER_METRICS } from './metrics.ts'

const about = (sessionId: string): PeerMessage => ({ to: 'gateway', ended: false, session_id: sessionId })

/** Nodes on one bus that can drop or reject envelopes, with the messages that each gets, in order. */
function parts() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const line = {
    drop: false,
    /** Number of the only envelope that is dropped. */
    dropOnly: 0,
    fail: false,
    envelopes: [] as Uint8Array[],
    atOnce: 0,
    mostAtOnce: 0,
    gap: () => {},
  }
  const log = pino({ level: 'silent' })
  const logged: string[] = []
  log.error = (_: unknown, message?: string) => void logged.push(String(message))
  log.warn = log.error
  const bus = (): Bus => ({
    ...store.bus,
    publish: async (channel, message) => {
      line.mostAtOnce = Math.max(line.mostAtOnce, ++line.atOnce)
      queueMicrotask(() => {
        line.atOnce--
      })
      if (line.envelopes.push(message) === line.dropOnly) return 0
      if (line.fail) throw new StoreUnavailable('cut')
      return line.drop ? 0 : store.bus.publish(channel, message)
    },
    subscribe: (channel, onMessage, onGap) => {
      line.gap = onGap!
      return store.bus.subscribe(channel, onMessage, onGap)
    },
  })
  let endOfTurn: (() => void)[] = []
  const endTurn = async (afterMs = 6) => {
    clock.advance(afterMs)
    const callbacks = endOfTurn
    endOfTurn = []
    for (const callback of callbacks) callback()
    await nextTurn()
  }
  const node = async (nodeId: string) => {
    const heard: string[] = []
    const links = new NodeLinks({
      nodeId,
      bus: bus(),
      clock,
      log,
      metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
      defer: (callback) => endOfTurn.push(callback),
    })
    await links.start({
      receive: (message, from) => {
        if (message.to === 'gateway' && message.session_id === 'throws') throw new Error('on purpose')
        heard.push(`${from}: ${message.to === 'gateway' ? message.session_id : message.to}`)
      },
      missed: (from) => heard.push(`gap ${from}`),
    })
    return { links, heard }
  }
  const elapse = async (ms: number) => {
    for (let left = ms; left > 0; left -= 50) {
      clock.advance(50)
      await nextTurn()
    }
  }
  const advanceBeyondMoment = () => clock.advance(MOMENT_MS - (clock.now() % MOMENT_MS) + 0.01)
  return { clock, store, line, logged, node, endTurn, elapse, advanceBeyondMoment }
}

describe('links between nodes', () => {
  it('transport messages in order: after a pause without delay, and later inputs 3 ms before the next moment, in one envelope', async () => {
    const { node, line, clock, endTurn, advanceBeyondMoment } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    advanceBeyondMoment()
    a.links.send('node_b', about('one'), 'input')
    a.links.send('node_b', about('two'), 'input')
    await nextTurn()
    expect(b.heard).toEqual([])
    await endTurn(0)
    expect(b.heard).toEqual(['node_a: one', 'node_a: two'])
    for (let i = 0; i < 5; i++) {
      clock.advance(0.9)
      a.links.send('node_b', about(`three ${i}`), 'input')
      await nextTurn()
    }
    clock.advance(MOMENT_MS - 3 - 4.5 - 0.1)
    await nextTurn()
    expect(line.envelopes).toHaveLength(1)
    clock.advance(0.1)
    await nextTurn()
    expect(b.heard.slice(2)).toEqual([0, 1, 2, 3, 4].map((i) => `node_a: three ${i}`))
    expect(line.envelopes).toHaveLength(2)
    expect(a.heard).toEqual([])
  })

  it('delay a message that a client waits for by at most 1 ms, and send all other messages with it', async () => {
    const { node, line, clock, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    const c = await node('node_c')
    a.links.send('node_b', about('one'))
    await endTurn()
    clock.advance(0.2)
    a.links.send('node_c', about('two'), 'input')
    a.links.send('node_b', about('three'), 'awaited')
    clock.advance(0.7)
    await nextTurn()
    expect(line.envelopes).toHaveLength(1)
    clock.advance(0.2)
    await nextTurn()
    expect(b.heard).toEqual(['node_a: one', 'node_a: three'])
    expect(c.heard).toEqual(['node_a: two'])
    clock.advance(60)
    a.links.send('node_b', about('four'), 'awaited')
    await endTurn()
    expect(b.heard).toContain('node_a: four')
    // Less than a timer can wait.
    clock.advance(0.6)
    a.links.send('node_b', about('five'), 'awaited')
    await endTurn(0)
    expect(b.heard).toContain('node_a: five')
  })

  it('send updates at the end of their turn, also right after inputs', async () => {
    const { node, line, clock, endTurn, advanceBeyondMoment } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    advanceBeyondMoment()
    a.links.send('node_b', about('update 1'), 'update')
    await endTurn(0)
    clock.advance(5)
    a.links.send('node_b', about('input'), 'input')
    clock.advance(MOMENT_MS - 5)
    await nextTurn()
    expect(line.envelopes).toHaveLength(2)
    a.links.send('node_b', about('update 2'), 'update')
    a.links.send('node_b', about('update 3'), 'update')
    await endTurn(0)
    expect(line.envelopes).toHaveLength(3)
    expect(b.heard).toEqual(['update 1', 'input', 'update 2', 'update 3'].map((text) => `node_a: ${text}`))
  })

  it('send a very large message in pieces, one after the other and in order', async () => {
    const { node, line, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    const long = 'x'.repeat(300_000)
    for (let i = 0; i < 10; i++) a.links.send('node_b', about(`${i}${long}`))
    await endTurn()
    a.links.send('node_b', about('last'))
    await endTurn()
    expect(b.heard.map((text) => text.slice(8, 9)).join('')).toBe('0123456789l')
    expect(line.envelopes.length).toBeGreaterThan(20)
    for (const envelope of line.envelopes) expect(envelope.length).toBeLessThan(140_000)
    // The last piece of one, and the first of the next.
    expect(line.mostAtOnce).toBe(2)
  })

  it('report the loss of any piece of a very large message once', async () => {
    for (const lost of [1, 2, 3]) {
      const { node, line, endTurn } = parts()
      const a = await node('node_a')
      const b = await node('node_b')
      a.links.send('node_b', about('first'))
      await endTurn()
      line.dropOnly = 1 + lost
      a.links.send('node_b', about('x'.repeat(300_000)))
      await endTurn()
      a.links.send('node_b', about('last'))
      await endTurn()
      expect(b.heard).toEqual(['node_a: first', 'gap node_a', 'node_a: last'])
    }
  })

  it('drop a very large message, and the messages behind it, if the bus rejects a piece', async () => {
    const { node, line, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('first'))
    await endTurn()
    line.fail = true
    a.links.send('node_b', about('x'.repeat(300_000)))
    a.links.send('node_b', about('behind'))
    await endTurn()
    line.fail = false
    expect(line.envelopes).toHaveLength(2)
    a.links.send('node_b', about('last'))
    await endTurn()
    expect(b.heard).toEqual(['node_a: first', 'gap node_a', 'node_a: last'])
  })

  it('report a lost envelope once, before the messages behind it', async () => {
    const { node, line, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await endTurn()
    line.drop = true
    for (const lost of ['two', 'three']) {
      a.links.send('node_b', about(lost))
      await endTurn()
    }
    line.drop = false
    for (const late of ['four', 'five']) {
      a.links.send('node_b', about(late))
      await endTurn()
    }
    expect(b.heard).toEqual(['node_a: one', 'gap node_a', 'node_a: four', 'node_a: five'])
  })

  it('report a lost first envelope, and a lost last one', async () => {
    const { node, line, endTurn, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    line.drop = true
    a.links.send('node_b', about('one'))
    await endTurn()
    line.drop = false
    await elapse(800)
    expect(b.heard).toEqual(['gap node_a'])
    a.links.send('node_b', about('two'))
    await endTurn()
    line.drop = true
    a.links.send('node_b', about('three'))
    await endTurn()
    line.drop = false
    await elapse(800)
    expect(b.heard).toEqual(['gap node_a', 'node_a: two', 'gap node_a'])
  })

  it('send nothing while they are idle', async () => {
    const { node, line, clock, endTurn, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await endTurn()
    await elapse(60_000)
    expect(line.envelopes).toHaveLength(3)
    expect(clock.pending).toBe(0)
    expect(b.heard).toEqual(['node_a: one'])
  })

  it('report messages that could not be published, when the store is back', async () => {
    const { node, line, logged, endTurn, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await endTurn()
    line.fail = true
    a.links.send('node_b', about('two'))
    await endTurn()
    await elapse(10_000)
    expect(logged).toHaveLength(1)
    line.fail = false
    await elapse(1000)
    expect(b.heard).toEqual(['node_a: one', 'gap node_a'])
  })

  it('deliver nothing that was sent to an earlier process of the same name, and report no gap to the new one', async () => {
    const { node, endTurn } = parts()
    const a = await node('node_a')
    const first = await node('node_b~1')
    a.links.send('node_b~1', about('one'))
    await endTurn()
    await first.links.close()
    const second = await node('node_b~2')
    a.links.send('node_b~1', about('two'))
    await endTurn()
    a.links.send('node_b~2', about('three'))
    await endTurn()
    expect(second.heard).toEqual(['node_a: three'])
  })

  it('report a gap if the store may have lost messages', async () => {
    const { node, line } = parts()
    const a = await node('node_a')
    line.gap()
    expect(a.heard).toEqual(['gap undefined'])
  })

  it('report a gap at the first envelope of a node that was forgotten', async () => {
    const { node, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    for (const text of ['one', 'two']) {
      a.links.send('node_b', about(text))
      await endTurn()
      b.links.forget('node_a')
    }
    expect(b.heard).toEqual(['node_a: one', 'gap node_a', 'node_a: two'])
  })

  it('report a gap to a node that was forgotten although it was there, but not to a new one', async () => {
    const { node, endTurn, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await endTurn()
    a.links.forget('node_b')
    a.links.greet('node_b')
    const c = await node('node_c')
    a.links.greet('node_c')
    await elapse(5000)
    expect(b.heard).toEqual(['node_a: one', 'gap node_a'])
    expect(c.heard).toEqual([])
  })

  it('drop damaged envelopes and those of other versions, and continue', async () => {
    const { node, line, store, logged, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await endTurn()
    const good = line.envelopes[0]!
    const publish = (bytes: Uint8Array) => store.bus.publish(nodeChannel('node_b'), bytes)
    await publish(new Uint8Array(3))
    const newer = good.slice()
    newer[0] = 200
    await publish(newer)
    await publish(newer)
    const cut = good.slice(0, good.length - 1)
    cut[9] = 2
    await publish(cut)
    await nextTurn()
    a.links.send('node_b', about('two'))
    await endTurn()
    a.links.send('node_b', about('three'))
    await endTurn()
    expect(b.heard).toEqual([
      'node_a: one',
      'gap undefined',
      'gap node_a',
      'gap node_a',
      'node_a: two',
      'node_a: three',
    ])
    expect(logged).toHaveLength(3)
  })

  it('continue after a message that cannot be encoded or handled', async () => {
    const { node, logged, endTurn } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    const room = roomAddress('prj_a', 'arena', 'one')
    const data = Number.NaN
    a.links.send('node_b', {
      to: 'owner',
      message: { room, member_id: 'mem_a', kind: 'message', type: 'move', data },
    })
    a.links.send('node_b', about('throws'))
    a.links.send('node_b', about('two'))
    await endTurn()
    expect(b.heard).toEqual(['node_a: two'])
    expect(logged).toHaveLength(2)
  })

  it('send the queued messages when they close, and nothing afterwards', async () => {
    const { node, clock, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    a.links.send('node_b', about('one'))
    await a.links.close()
    a.links.send('node_b', about('two'))
    await elapse(5000)
    expect(b.heard).toEqual(['node_a: one'])
    expect(clock.pending).toBe(0)
  })
})
