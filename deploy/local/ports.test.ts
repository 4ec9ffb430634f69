import { createServer, type Server } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { PortBlock } from './ports.ts'

/** Those who begin to look at the same place. */
const alike = () => new SeededRandom(7)

const blocks: PortBlock[] = []
const servers: Server[] = []
afterEach(async () => {
  await Promise.all(blocks.splice(0).map((block) => block.release()))
  for (const server of servers.splice(0)) server.close()
})

async function claim(): Promise<PortBlock> {
  const block = await PortBlock.claim(alike())
  blocks.push(block)
  return block
}

async function take(block: PortBlock, count: number): Promise<number[]> {
  const ports: number[] = []
  while (ports.length < count) ports.push(await block.take())
  return ports
}

const listen = (port: number): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
    servers.push(server)
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => resolve((server.address() as { port: number }).port))
  })

it('gives no one the ports of another, though no one listens on them yet', async () => {
  const all = await Promise.all([claim(), claim(), claim()])
  const ports = (await Promise.all(all.map((block) => take(block, 33)))).flat()
  expect(new Set(ports).size).toBe(99)
})

it('passes over a port that someone listens on', async () => {
  const first = await claim()
  const [taken] = await take(first, 1)
  await listen(taken!)
  await first.release()
  blocks.length = 0
  expect((await take(await claim(), 33)).includes(taken!)).toBe(false)
})

it('has none of the ports that the system gives to a program that asks for any', async () => {
  const any = Math.min(...(await Promise.all(Array.from({ length: 50 }, () => listen(0)))))
  expect(Math.max(...(await take(await claim(), 33)))).toBeLessThan(any)
})

it('is free again when it is released, and says so when all are taken', async () => {
  // Where neither clusters nor tests have theirs, and few other runs of this test.
  const from = 7_100 + (process.pid % 10) * 96
  const few = { from, below: from + 96 }
  const held = [await PortBlock.claim(alike(), few), await PortBlock.claim(alike(), few)]
  await expect(PortBlock.claim(alike(), few)).rejects.toThrow(
    `every block of 48 ports from ${from} to ${from + 95} of this machine is taken`,
  )
  await held.pop()!.release()
  blocks.push(...held, await PortBlock.claim(alike(), few))
  await expect(take(blocks[1]!, 48)).rejects.toThrow(/of this machine are all taken/)
})
