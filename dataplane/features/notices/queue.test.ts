import { describe, expect, it } from 'vitest'
import { NoticeQueue } from './queue.ts'

const FENCE = { epoch: 7, version: 0 }
const bytes = (text: string) => new TextEncoder().encode(text)

function setup() {
  const stored: Uint8Array[] = []
  const nothing = async (): Promise<void> => undefined
  const delivery = { recover: nothing, list: nothing, leave: nothing, ready: () => undefined }
  const queue = new NoticeQueue('prj_a/duel:1', FENCE, () => true, delivery)
  const next = () => queue.next({ oldest: async (_room, limit) => stored.slice(0, limit) })
  return { stored, queue, next }
}

describe('NoticeQueue', () => {
  it('keeps a notice that was pushed while another one was removed and the store was counted again', async () => {
    const { stored, queue, next } = setup()
    const [a, b] = [bytes('a'), bytes('b')]
    queue.push([a])
    expect(await next()).toBe(a)
    queue.recover()
    queue.counted(0)
    queue.push([b])
    stored.push(b)
    queue.removed(a)
    expect([queue.size, await next()]).toEqual([1, b])
  })

  it('is not empty between the announcement of notices and the end of their write, nor before the store has counted them', async () => {
    const { queue, next } = setup()
    expect(queue.isEmpty).toBe(true)
    await queue.announce(FENCE)
    expect(queue.isEmpty).toBe(false)
    queue.push([bytes('a')])
    queue.removed((await next())!)
    expect(queue.isEmpty).toBe(true)
    queue.recover()
    expect(queue.isEmpty).toBe(false)
    queue.counted(0)
    expect(queue.isEmpty).toBe(true)
  })
})
