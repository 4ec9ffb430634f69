import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { Child } from '../../deploy/local/child.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { nodesOf } from './nodes.ts'

let folder = ''
let children: Map<string, Child>
let told: string[]
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'roomful-nodes-'))
  children = new Map()
  told = []
})
afterEach(async () => {
  for (const child of children.values()) await child.kill()
  await rm(folder, { recursive: true })
})

/** A process that does this at SIGTERM, under the name of a node. */
async function start(name: string, at_end: string): Promise<void> {
  const child = new Child({
    name,
    program: process.execPath,
    args: ['-e', `process.on('SIGTERM', () => ${at_end}); setInterval(() => {}, 1000); console.log('ready')`],
    env: process.env,
    ready: /ready/,
    log_file: join(folder, `${name}.log`),
    warden: { watch: () => undefined, release: () => undefined },
    clock: new FakeClock(),
    on_exit: () => undefined,
  })
  children.set(name, child)
  await child.start()
}

const nodes = () => nodesOf(children, (line) => told.push(line))

describe('a node that is told to end and started anew', () => {
  it('is nothing to tell of where it ends as it should', async () => {
    await start('node-1', 'process.exit(0)')
    const before = children.get('node-1')!.pid
    await nodes().restart('node-1')
    expect(children.get('node-1')).toMatchObject({ state: 'ready' })
    expect(children.get('node-1')!.pid).not.toBe(before)
    expect(told).toEqual([])
  })

  it('is told of where it fails at its end, though it was told to end', async () => {
    await start('node-1', 'process.exit(1)')
    await start('node-2', "process.kill(process.pid, 'SIGKILL')")
    await nodes().restart('node-1')
    await nodes().restart('node-2')
    expect(told).toEqual([
      `node-1 was told to end in order, and did not (exit code 1); ${join(folder, 'node-1.log')} may say why`,
      `node-2 was told to end in order, and did not (SIGKILL); ${join(folder, 'node-2.log')} may say why`,
    ])
  })
})

it('nodes that are not there are told apart from those that are', async () => {
  await start('node-1', 'process.exit(0)')
  await expect(nodes().restart('control-1')).rejects.toThrow('there is no control-1; there are node-1')
})
