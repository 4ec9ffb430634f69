import { describe, expect, it, vi } from 'vitest'
import { bytes, everyByte, type OpenStore, opened, text } from './harness.ts'

export function describeBus(open: OpenStore): void {
  describe('bus', () => {
    it('hands every message to the subscribers of its channel, in order, and counts the processes that listen', async () => {
      const { bus } = (await opened(open)).store
      const heard: string[] = []
      expect(await bus.publish('news', bytes('before anybody listened'))).toBe(0)
      await bus.subscribe('news', (message) => heard.push(`first ${text(message)}`))
      await bus.subscribe('news', (message) => heard.push(`second ${text(message)}`))
      await bus.subscribe('other', (message) => heard.push(`other ${text(message)}`))
      expect(await Promise.all([bus.publish('news', bytes('1')), bus.publish('news', bytes('2'))])).toEqual([
        1, 1,
      ])
      await vi.waitFor(() => expect(heard).toHaveLength(4), 60_000)
      expect(heard).toEqual(['first 1', 'second 1', 'first 2', 'second 2'])
    })

    it('delivers after publish has returned to its caller', async () => {
      const { bus } = (await opened(open)).store
      const steps: string[] = []
      await bus.subscribe('c', () => steps.push('delivered'))
      const publishing = bus.publish('c', bytes('x'))
      steps.push('returned')
      await publishing
      await vi.waitFor(() => expect(steps).toEqual(['returned', 'delivered']), 60_000)
    })

    it('carries every byte value and the empty message, and shares no buffer', async () => {
      const { bus } = (await opened(open)).store
      const heard: Uint8Array[] = []
      await bus.subscribe('c', (message) => message.fill(0))
      await bus.subscribe('c', (message) => heard.push(message))
      const message = everyByte()
      const publishing = bus.publish('c', message)
      message.fill(0)
      await publishing
      await bus.publish('c', new Uint8Array())
      await vi.waitFor(() => expect(heard).toEqual([everyByte(), new Uint8Array()]), 60_000)
    })

    it('ends a subscription and leaves the others', async () => {
      const { bus } = (await opened(open)).store
      const heard: string[] = []
      const end = await bus.subscribe('c', () => heard.push('ended'))
      const endOther = await bus.subscribe('c', (message) => heard.push(`${text(message)}`))
      await end()
      await end()
      expect(await bus.publish('c', bytes('one'))).toBe(1)
      await vi.waitFor(() => expect(heard).toEqual(['one']), 60_000)
      await endOther()
      expect(await bus.publish('c', bytes('two'))).toBe(0)
      await bus.subscribe('c', (message) => heard.push(`again ${text(message)}`))
      expect(await bus.publish('c', bytes('three'))).toBe(1)
      await vi.waitFor(() => expect(heard).toEqual(['one', 'again three']), 60_000)
    })

    it('tells how many processes listen to each channel, in the order asked', async () => {
      const { bus } = (await opened(open)).store
      expect(await bus.listeners([])).toEqual([])
      expect(await bus.listeners(['c', 'd'])).toEqual([0, 0])
      const end = await bus.subscribe('d', () => undefined)
      await bus.subscribe('d', () => undefined)
      expect(await bus.listeners(['c', 'd', 'c'])).toEqual([0, 1, 0])
      await end()
      expect(await bus.listeners(['d'])).toEqual([1])
    })
  })
}
