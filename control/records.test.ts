import { beforeEach, describe, expect, it } from 'vitest'
import { Problem } from '../shared/problem.ts'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store, Write } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Keyring } from './keyring.ts'
import { Idempotency, type RequestIdentity } from './records.ts'

const DAY_MS = 24 * 3600 * 1000
const request: RequestIdentity = {
  caller: { id: 'operator:a' },
  path: '/projects',
  body: { name: 'one' },
  idempotencyKey: 'order-1',
}

let clock: FakeClock
let store: Store
let idempotency: Idempotency
let made: number

/** Each plan adds another record to the store. */
async function plan() {
  made += 1
  const id = `thing-${made}`
  const writes: Write[] = [{ index: '{control}:things', add: id }]
  return { writes, answer: { id, secret: `secret of ${id}` } }
}

const things = () => store.records.page('{control}:things', { limit: 100 })

beforeEach(() => {
  clock = new FakeClock()
  store = memoryStore({ clock })
  idempotency = new Idempotency({ records: store.records, keyring: new Keyring('secret', systemRandom) })
  made = 0
})

describe('an idempotency key', () => {
  it('returns the complete first answer again, without a second write', async () => {
    const first = await idempotency.run(request, plan)
    const again = await idempotency.run(request, plan)
    expect(first).toEqual({ answer: { id: 'thing-1', secret: 'secret of thing-1' }, replayed: false })
    expect(again).toEqual({ answer: first.answer, replayed: true })
    expect(await things()).toEqual(['thing-1'])
  })

  it('lets one of many concurrent requests win, and returns its answer to all', async () => {
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => idempotency.run(request, plan)))
    expect(new Set(outcomes.map(({ answer }) => answer.id)).size).toBe(1)
    expect(outcomes.filter(({ replayed }) => !replayed)).toHaveLength(1)
    expect(await things()).toEqual([outcomes[0]!.answer.id])
  })

  it('causes a conflict with another body', async () => {
    await idempotency.run(request, plan)
    const other = idempotency.run({ ...request, body: { name: 'two' } }, plan)
    await expect(other).rejects.toMatchObject({ code: 'conflict' })
    expect(await things()).toHaveLength(1)
  })

  it('belongs to one caller and one path', async () => {
    await idempotency.run(request, plan)
    await idempotency.run({ ...request, caller: { id: 'operator:b' } }, plan)
    await idempotency.run({ ...request, path: '/projects/prj_a/keys' }, plan)
    expect(await things()).toHaveLength(3)
  })

  it('expires after 24 hours', async () => {
    await idempotency.run(request, plan)
    clock.advance(DAY_MS - 1)
    expect((await idempotency.run(request, plan)).replayed).toBe(true)
    clock.advance(1)
    expect((await idempotency.run(request, plan)).replayed).toBe(false)
  })

  it('leaves no secret readable in the store', async () => {
    const values: string[] = []
    const records = {
      ...store.records,
      read: store.records.read.bind(store.records),
      page: store.records.page.bind(store.records),
      write: (writes: readonly Write[]) => {
        for (const write of writes)
          if ('value' in write) values.push(Buffer.from(write.value).toString('latin1'))
        return store.records.write(writes)
      },
    }
    await new Idempotency({ records, keyring: new Keyring('secret', systemRandom) }).run(request, plan)
    expect(values).toHaveLength(1)
    expect(values.join()).not.toContain('thing-1')
  })

  it('causes a conflict without a write if its answer was sealed under a secret that was removed', async () => {
    await idempotency.run(request, plan)
    const later = new Idempotency({ records: store.records, keyring: new Keyring('another', systemRandom) })
    await expect(later.run(request, plan)).rejects.toMatchObject({ code: 'conflict' })
    const both = new Idempotency({
      records: store.records,
      keyring: new Keyring('another,secret', systemRandom),
    })
    expect(await both.run(request, plan)).toMatchObject({ replayed: true })
  })

  it.each(['', 'line\nbreak', 'ümlaut', 'x'.repeat(256)])(
    'is refused if it is %j',
    async (idempotencyKey) => {
      await expect(idempotency.run({ ...request, idempotencyKey }, plan)).rejects.toBeInstanceOf(Problem)
    },
  )
})

describe('without an idempotency key', () => {
  it('each request is carried out', async () => {
    await idempotency.run({ ...request, idempotencyKey: undefined }, plan)
    await idempotency.run({ ...request, idempotencyKey: undefined }, plan)
    expect(await things()).toEqual(['thing-2', 'thing-1'])
  })
})
