import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type RoomAddress, roomAddress } from '../traffic.ts'
import type { PeerMessage } from './envelope.ts'
import { handOver, type LeavingRoom } from './ownership.ts'

/** A room whose save ends when the test says so. */
class TestRoom implements LeavingRoom {
  readonly address: RoomAddress
  readonly mostlyAt: string | undefined
  readonly stateVersion = 1
  successor: string | undefined | 'not asked' = 'not asked'
  #saved: (isFree: boolean) => void = () => {}

  constructor(key: string, mostlyAt?: string) {
    this.address = roomAddress('prj_a', 'duel', key)
    this.mostlyAt = mostlyAt
  }

  handOver(successor?: string): Promise<boolean> {
    this.successor = successor
    return new Promise((resolve) => {
      this.#saved = resolve
    })
  }

  /** The room is saved and released. `fenced`: another node had claimed it before. */
  async save({ fenced = false } = {}): Promise<void> {
    this.#saved(!fenced)
    await flushed()
  }

  get asked(): boolean {
    return this.successor !== 'not asked'
  }
}

/** Resolves when all callbacks of resolved promises have run. */
const flushed = () => new Promise((resolve) => setImmediate(resolve))

function handing(rooms: readonly TestRoom[], place: (preferred: string | undefined) => string | undefined) {
  const clock = new FakeClock()
  const asked: string[] = []
  const seconds: number[] = []
  const links = {
    send: (nodeId: string, message: PeerMessage) =>
      void asked.push(`${nodeId} ${message.to === 'host' && message.room.key}`),
  }
  const metrics = { handOverDuration: { observe: (took: number) => void seconds.push(took) } }
  const done = handOver(rooms, { links, clock, metrics }, { choose: (_, __, mostlyAt) => place(mostlyAt) })
  return { clock, asked, seconds, done }
}

describe('handOver', () => {
  it('asks the chosen node to claim a room once it is saved, and observes the time without an owner', async () => {
    const room = new TestRoom('one', 'node_b')
    const { clock, asked, seconds, done } = handing([room], (preferred) => preferred)
    expect(room.successor).toBe('node_b')
    expect(asked).toEqual([])
    clock.advance(40)
    await room.save()
    await done
    expect(asked).toEqual(['node_b one'])
    expect(seconds).toEqual([0.04])
  })

  it('asks no node to claim a room that another node has claimed before', async () => {
    const room = new TestRoom('one')
    const { asked, done } = handing([room], () => 'node_b')
    await room.save({ fenced: true })
    await done
    expect(asked).toEqual([])
  })

  it('saves a room that no node can take', async () => {
    const room = new TestRoom('one')
    const { asked, done } = handing([room], () => undefined)
    expect(room.asked).toBe(true)
    expect(room.successor).toBeUndefined()
    await room.save()
    await done
    expect(asked).toEqual([])
  })

  it('chooses the node of each room when its hand-over starts', async () => {
    const rooms = [new TestRoom('one', 'node_b'), new TestRoom('two', 'node_c'), new TestRoom('three')]
    const preferences: (string | undefined)[] = []
    const { asked, done } = handing(rooms, (preferred) => {
      preferences.push(preferred)
      return preferred ?? 'node_d'
    })
    for (const room of rooms) await room.save()
    await done
    expect(preferences).toEqual(['node_b', 'node_c', undefined])
    expect(asked).toEqual(['node_b one', 'node_c two', 'node_d three'])
  })

  it('hands over 8 rooms at the same time, and starts the next when one is done', async () => {
    const rooms = Array.from({ length: 20 }, (_, i) => new TestRoom(String(i)))
    const { seconds, done } = handing(rooms, () => 'node_b')
    const begun = () => rooms.filter(({ asked }) => asked).length
    expect(begun()).toBe(8)
    await rooms[3]!.save()
    expect(begun()).toBe(9)
    for (const room of rooms) await room.save()
    await done
    expect(begun()).toBe(20)
    expect(seconds).toHaveLength(20)
  })

  it('resolves without rooms', async () => {
    const { seconds, done } = handing([], () => 'node_b')
    await done
    expect(seconds).toEqual([])
  })
})
