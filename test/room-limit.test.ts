import { defineRoom } from 'roomful'
import { expect, it } from 'vitest'
import { sharedCluster } from './support/cluster.ts'
import { TestClient } from './support/gateway/test-gateway.ts'

const cluster = sharedCluster({ redis: 'none', leaseMs: 30_000 })

it('a node has no more rooms than MAX_ROOMS, also if players create many at the same time', async () => {
  const hall = defineRoom({ type: 'hall', create: () => ({}) })
  const [node] = await cluster.local(1, { rooms: [hall], maxRooms: 3 })
  const { projectId, token } = await cluster.login()
  const client = await TestClient.open(node!.wsUrl)
  client.send({ t: 'hello', project_id: projectId, token })
  await client.next('welcome')
  for (let n = 1; n <= 10; n++)
    client.send({ t: 'join', request_id: n, room_type: 'hall', options: { key: `hall-${n}` } })
  const answers = () => client.received.filter(({ t }) => t === 'joined' || t === 'error')
  await expect.poll(() => answers().length).toBe(10)
  expect(answers().filter(({ t }) => t === 'joined')).toHaveLength(3)
  expect(answers().find(({ t }) => t === 'error')).toMatchObject({ code: 'overloaded', retryable: true })
})
