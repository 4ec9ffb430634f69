import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { beforeAll, expect, it, vi } from 'vitest'
import { type LocalNode, type Login, sharedCluster } from './support/cluster.ts'
import { TestClient } from './support/gateway/test-gateway.ts'
import { until } from './support/redis-server.ts'

const counter = (durability: 'journal' | 'none') =>
  defineRoom({
    type: `counter-${durability}`,
    messages: { add: { data: v.object({}) } },
    durability,
    create: () => ({ count: 0 }),
    onMessage(state) {
      state.count += 1
    },
  })

type Counts = Readonly<Record<string, number>>

// If the node missed its lease on a busy machine, it would inspect a room again. A Redis younger than the lease would delay the first claim.
const cluster = sharedCluster({ redis: 'none', leaseMs: 30_000 })
let node: LocalNode
let login: Login
/** Commands of the node for sessions and rooms since the last call of `asked`. */
const commands: string[] = []
beforeAll(async () => {
  ;[node] = (await cluster.local(1, { rooms: [counter('journal'), counter('none')] })) as [LocalNode]
  login = await cluster.login()
  const { records, rooms } = node.store
  const [read, write] = [records.read.bind(records), records.write.bind(records)]
  const ofSession = (key: string): boolean => /^(session|quota):/.test(key)
  vi.spyOn(records, 'read').mockImplementation((keys) => {
    // Each key is one command.
    commands.push(...keys.filter(ofSession).map(() => 'read'))
    return read(keys)
  })
  vi.spyOn(records, 'write').mockImplementation((writes) => {
    if (writes.some((step) => 'put' in step && ofSession(step.put))) commands.push('write')
    if (writes.some((step) => 'remove' in step && ofSession(step.remove))) commands.push('remove')
    if (writes.every((step) => 'index' in step && ofSession(step.index))) commands.push('place')
    return write(writes)
  })
  for (const name of ['inspect', 'open', 'reserve', 'claim', 'commit', 'snapshot'] as const) {
    const method = rooms[name].bind(rooms) as (...args: unknown[]) => Promise<never>
    vi.spyOn(rooms, name).mockImplementation((...args: unknown[]) => {
      commands.push(name)
      return method(...args)
    })
  }
})

/** Waits for as many commands as expected. Returns the counts since the last call. */
async function asked(expected: Counts): Promise<Counts> {
  const wanted = Object.values(expected).reduce((sum, count) => sum + count, 0)
  await until('the store has got the commands', async () => commands.length >= wanted)
  const counts: Record<string, number> = {}
  for (const name of commands.splice(0)) counts[name] = (counts[name] ?? 0) + 1
  return counts
}

async function hello(words: object) {
  const client = await TestClient.open(node.wsUrl)
  client.ws.send(JSON.stringify({ t: 'hello', project_id: login.projectId, ...words }))
  return { client, welcome: await client.next('welcome') }
}

async function join(durability: 'journal' | 'none') {
  const { client, welcome } = await hello({ token: login.token })
  client.send({ t: 'join', request_id: 1, room_type: `counter-${durability}`, options: { key: 'one' } })
  const { member_id } = await client.next('joined')
  const { room_id, epoch, seq } = await client.next('state.snapshot')
  return { client, welcome, position: { room_id, member_id, epoch, seq, settled: 0 } }
}

it('the store gets only these commands for a join, a resume and a goodbye', async () => {
  await join('none')
  const newRoom = { write: 2, open: 1, reserve: 1 }
  expect(await asked(newRoom), 'into a new room').toEqual(newRoom)

  const { client, welcome, position } = await join('none')
  expect(await asked({ write: 2 }), 'into an existing room').toEqual({ write: 2 })

  const { session_id, resume_token } = welcome
  const back = await hello({ resume: { session_id, resume_token, rooms: [position] } })
  await client.closed
  back.client.send({ t: 'ping', at: 1 })
  const resumed = { write: 2 }
  expect(await asked(resumed), 'a resume, and the first message after its welcome').toEqual(resumed)

  back.client.send({ t: 'goodbye' })
  expect(await asked({ remove: 1 }), 'a goodbye').toEqual({ remove: 1 })
})

it('the store gets one command for each flush of a journal', async () => {
  const { client, position } = await join('journal')
  await client.roundTrip()
  const newRoom = { write: 2, open: 1, reserve: 1, snapshot: 1 }
  expect(await asked(newRoom), 'into a new room').toEqual(newRoom)
  for (let ref = 1; ref <= 50; ref++)
    client.send({ t: 'message', room_id: position.room_id, type: 'add', data: {}, ref, settled: 0 })
  const { seq } = await client.next('state.patch', ({ ops }) => JSON.stringify(ops).includes('50'))
  const flushes = { commit: seq - position.seq }
  expect(flushes.commit).toBeLessThan(50)
  expect(await asked(flushes)).toEqual(flushes)
})
