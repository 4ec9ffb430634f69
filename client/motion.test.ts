import * as v from 'valibot'
import { expect, test } from 'vitest'
import { defineRoom } from '../dataplane/index.ts'
import { testRooms } from '../test/kit/index.ts'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { online, turn } from '../test/support/client/play.ts'
import { interpolate, predict } from './motion.ts'

interface Walker {
  x: number
  y: number
  name: string
}

/** Units per second. */
const SPEED = 300
const FRAME_MS = 1000 / 60
const UPDATE_MS = 50
/** Distance of one frame. */
const STEP = (SPEED * FRAME_MS) / 1000

/** Shared by the room and the page. */
const move = (walker: { x: number }, { dx }: { dx: number }): void => {
  walker.x = Math.min(1000, Math.max(0, walker.x + dx))
}

const walk = defineRoom({
  type: 'walk',
  create: () => ({ players: {} as Record<string, Walker>, now: 0 }),
  messages: {
    move: {
      data: v.object({ dx: v.number() }),
      handle(state, { data, member }, ctx) {
        if (Math.abs(data.dx) > 100) return ctx.refuse('too far')
        move(state.players[member.id]!, data)
      },
    },
  },
  onJoin(state, member) {
    state.players[member.id] = { x: 500, y: 0, name: member.id }
  },
})

/** Delays of one direction: in order, 75 ± 15 ms each, and 250 ms more for one in twenty. */
const delays = () => {
  const random = new SeededRandom(7)
  let lastMs = 0
  return (nowMs: number): number => {
    const stallMs = random.float() < 0.05 ? 250 : 0
    lastMs = Math.max(lastMs, nowMs + 60 + random.float() * 30 + stallMs)
    return lastMs - nowMs
  }
}

/**
 * A client on a bad network. The server applies received messages 20 times a second, and Bob walks to and fro. `lateMs`: maximum delay of an
 * update. `time`: `interpolate` uses the time in the state.
 */
async function game({ lateMs = 0, time = false } = {}) {
  const scene = await online()
  const { clock, server, client } = scene
  const room = await client.join<typeof walk>('walk')
  await scene.pass(1)
  const owner = server.room(room.id)
  const me = room.memberId
  const [up, down] = [delays(), delays()]
  const irregular = new SeededRandom(3)
  let state = {
    now: clock.monotonic(),
    players: { [me]: { x: 500, y: 0, name: 'me' }, bob: { x: 100, y: 0, name: 'bob' } },
  }
  server.deliver(owner.patch(structuredClone(state)))
  const inbox: { ref: number; dx: number }[] = []
  let [heard, ticks] = [0, 0]
  const later = (delayMs: number, what: () => void) => void clock.schedule(delayMs, what)
  /** Extra change in the next update of the server. */
  let sudden: ((players: Record<string, Walker>) => void) | undefined
  const spoil = { next: false }

  let dueMs = clock.monotonic()
  const update = (): void => {
    dueMs += UPDATE_MS
    later(dueMs + irregular.float() * lateMs - clock.monotonic(), update)
    const next = structuredClone(state)
    const passedMs = clock.monotonic() - state.now
    next.now = clock.monotonic()
    const walker = next.players[me]!
    const refs = inbox.splice(0).map(({ ref, dx }) => {
      move(walker, { dx })
      return ref
    })
    ticks++
    next.players.bob!.x += (ticks % 80 < 40 ? 1 : -1) * (SPEED * passedMs) * 0.001
    sudden?.(next.players)
    sudden = undefined
    state = next
    const payload = spoil.next ? owner.wrongPatch(next) : owner.patch(next)
    spoil.next = false
    later(down(clock.monotonic()), () => {
      server.deliver(payload)
      if (refs.length > 0) server.ack(owner, refs.at(-1)!)
    })
  }
  update()

  const options = { smooth: ['x', 'y'] as const, snap: 200, clock }
  const own = predict(room, { ...options, own: (all, id) => all.players[id], apply: { move } })
  const others = interpolate(room, {
    select: (all) => all.players,
    fields: ['x', 'y'],
    snap: 200,
    clock,
    ...(time && { time: (all: { now: number }) => all.now }),
  })

  return {
    ...scene,
    room,
    own,
    others,
    state: () => state.players,
    spoil,
    do: (what: typeof sudden) => {
      sudden = what
    },
    /** Advances to the next frame of the screen. */
    async frame(): Promise<void> {
      clock.advance(FRAME_MS)
      await turn()
      for (const message of server.heard.slice(heard)) {
        if (message.t === 'message') {
          const { ref, data } = message
          later(up(clock.monotonic()), () => inbox.push({ ref: ref!, dx: (data as { dx: number }).dx }))
        } else if (message.t === 'state.resync')
          later(up(clock.monotonic()), () => {
            const whole = owner.resync()
            later(down(clock.monotonic()), () => server.deliver(whole))
          })
      }
      heard = server.heard.length
    },
  }
}

type Game = Awaited<ReturnType<typeof game>>

/** Walks to and fro, and returns the largest movement between two frames, of each player. */
async function play(t: Game, seconds: number, each: (frame: number) => void = () => {}) {
  const largest = { own: 0, ownRaw: 0, bob: 0, bobRaw: 0 }
  const look = () => ({
    own: t.own.at()!.x,
    ownRaw: t.room.state.players[t.room.memberId]!.x,
    bob: t.others.at().get('bob')!.x,
    bobRaw: t.room.state.players.bob!.x,
  })
  let before = look()
  let dx = 0
  for (let frame = 0; frame < seconds * 60; frame++) {
    await t.frame()
    each(frame)
    dx += frame % 120 < 60 ? STEP : -STEP
    if (frame % 3 === 2) {
      void t.own.send('move', { dx })
      dx = 0
    } else t.own.preview('move', { dx })
    const now = look()
    for (const key of ['own', 'ownRaw', 'bob', 'bobRaw'] as const)
      largest[key] = Math.max(largest[key], Math.abs(now[key] - before[key]) / STEP)
    before = now
  }
  return largest
}

/** Lets 3 s pass without input. */
async function rest(t: Game): Promise<void> {
  for (let frame = 0; frame < 180; frame++) await t.frame()
}

test('at a round trip of 150 ms with jitter and stalls, own inputs show immediately, and all players move evenly', async () => {
  const t = await game()
  const before = t.own.at()!.x
  void t.own.send('move', { dx: 5 })
  expect(t.own.at()!.x).toBe(before + 5)
  const largest = await play(t, 30)
  process.stdout.write(`largest step in a frame, in steps of that speed: ${JSON.stringify(largest)}\n`)
  expect(largest.own).toBeLessThan(1.05)
  expect(largest.bob).toBeLessThan(1.1)
  // Without prediction and interpolation, players jump by whole updates, and by several after a stall.
  expect(Math.min(largest.ownRaw, largest.bobRaw)).toBeGreaterThan(3)
  await rest(t)
  expect(t.own.at()).toEqual(t.state()[t.room.memberId])
})

test('with the option time, other players move evenly although updates are irregular', async () => {
  const [byRhythm, byTime] = [await game({ lateMs: 30 }), await game({ lateMs: 30, time: true })]
  const [rhythm, time] = [await play(byRhythm, 30), await play(byTime, 30)]
  process.stdout.write(`the same with irregular updates, and with their time: ${rhythm.bob}, ${time.bob}\n`)
  expect(time.bob).toBeLessThan(1.1)
  expect(rhythm.bob).toBeGreaterThan(1.3)
})

test('a small correction is smoothed, and one above snap is a jump', async () => {
  const t = await game()
  const dodge = async (to: (walker: Walker) => void) => {
    t.do((players) => to(players[t.room.memberId]!))
    const largest = await play(t, 2)
    await rest(t)
    expect(t.own.at()).toEqual(t.state()[t.room.memberId])
    return largest.own
  }
  // A push by 60 is the distance of 12 frames.
  expect(
    await dodge((walker) => {
      walker.x += 60
    }),
  ).toBeLessThan(4)
  expect(
    await dodge((walker) => {
      walker.x = walker.x > 500 ? 100 : 900
    }),
  ).toBeGreaterThan(40)
})

test('a resync does not move the own player', async () => {
  const t = await game()
  const largest = await play(t, 10, (frame) => {
    if (frame % 150 === 100) t.spoil.next = true
  })
  expect(t.client.stats.resyncs.checksum).toBe(4)
  expect(largest.own).toBeLessThan(1.05)
  await rest(t)
  expect(t.own.at()).toEqual(t.state()[t.room.memberId])
})

test('other players appear and disappear at the displayed time, and a teleport is a jump', async () => {
  const t = await game()
  const seen: (number | undefined)[] = []
  const watch = async (frames: number) => {
    for (let frame = 0; frame < frames; frame++) {
      await t.frame()
      seen.push(t.others.at().get('eve')?.x)
    }
  }
  await watch(30)
  t.do((players) => {
    players.eve = { x: 10, y: 0, name: 'eve' }
  })
  await watch(60)
  t.do((players) => {
    players.eve!.x = 900
  })
  await watch(60)
  t.do((players) => {
    delete players.eve
  })
  await watch(60)
  expect(seen.filter((x, i) => i === 0 || x !== seen[i - 1])).toEqual([undefined, 10, 900, undefined])
  t.others.stop()
})

test('a player that stood for 5 s starts at the last interval, not in slow motion over the whole pause', async () => {
  const { clock, server, client, pass } = await online()
  const room = await client.join<typeof walk>('walk')
  await pass(1)
  const owner = server.room(room.id)
  const others = interpolate(room, { select: (all) => all.players, fields: ['x'], clock })
  const at = (x: number) =>
    server.deliver(owner.patch({ now: 0, players: { bob: { x, y: 0, name: 'bob' } } }))
  at(0)
  await pass(5000)
  at(10)
  expect(others.at().get('bob')!.x).toBe(0)
  await pass(75)
  expect(others.at().get('bob')!.x).toBeCloseTo(5)
  await pass(5000)
  expect(others.at().get('bob')!.x).toBe(10)
})

test('the effect of a refused message is undone', async () => {
  const t = await testRooms([walk])
  const [room] = await t.join('walk')
  const me = predict(room, {
    own: (all, id) => all.players[id],
    apply: { move },
    smooth: ['x'],
    clock: at(t),
  })
  const refused = me.send('move', { dx: 101 })
  expect(me.at()!.x).toBe(601)
  await expect(refused).rejects.toThrow('too far')
  // The correction starts here.
  expect(me.at()!.x).toBe(601)
  await t.advance(2000)
  expect(me.at()!.x).toBe(500)
})

test.each(['killOwner', 'drainOwner', 'reconnect'] as const)(
  'inputs before and during %s are applied once',
  async (how) => {
    const t = await testRooms([walk])
    const [room, other] = await t.join('walk', 2)
    const options = { own: (all: typeof room.state, id: string) => all.players[id], apply: { move } }
    const me = predict(room, { ...options, smooth: ['x'], clock: at(t) })
    await me.send('move', { dx: 10 })
    if (how === 'reconnect') await t.drop(room)
    const sent = [me.send('move', { dx: 10 }), me.send('move', { dx: 10 })]
    expect(me.at()!.x).toBeCloseTo(530)
    await (how === 'reconnect' ? t.reconnect(room) : t[how]())
    await Promise.all(sent)
    await t.advance(1000)
    expect(me.at()!.x).toBe(530)
    expect(other.state.players[room.memberId]!.x).toBe(530)
  },
)

/** Clock of the test rooms. */
const at = (t: { readonly now: number }) => ({ monotonic: () => t.now })

test('a rate of 0 causes an error with the valid values', async () => {
  const { client, pass } = await online()
  const room = await client.join<typeof walk>('walk')
  await pass(1)
  expect(() => interpolate(room, { select: (all) => all.players, fields: ['x'], rate: 0 })).toThrow(
    new RangeError('rate is 0: pass the number of updates per second, above 0'),
  )
})
