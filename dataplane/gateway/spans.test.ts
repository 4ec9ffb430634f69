import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { TestControl, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../test/support/gateway/test-owner.ts'
import { RecordingTracer } from '../../test/support/recording-tracer.ts'
import type { ToOwner } from '../traffic.ts'
import type { GatewayOptions } from './context.ts'

const BACKEND = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

let test: TestGateway
let tracer: RecordingTracer
let sent: ToOwner[]

async function start(options: Partial<GatewayOptions> = {}): Promise<void> {
  const clock = new FakeClock()
  const owner = new TestOwner(testCodecs())
  tracer = new RecordingTracer(clock)
  sent = []
  const send = (message: ToOwner): void => {
    sent.push(message)
    owner.send(message)
  }
  const world = { clock, owner, control: await TestControl.start() }
  test = await TestGateway.start(options, { tracer, send }, world)
}

const named = (name: string) => tracer.spans.filter((span) => span.name === name)
const token = () => test.token({ traceparent: BACKEND, tracestate: 'vendor=value' })

beforeEach(() => start())
afterEach(() => test.close())

describe('the span of a handshake', () => {
  it('takes from the open socket to welcome, and begins a trace for a token of control without traces', async () => {
    const client = await test.open()
    test.clock.advance(40)
    client.send({ t: 'hello', project_id: 'prj_one', token: await test.token() })
    await client.next('welcome')
    expect(tracer.spans).toMatchObject([
      {
        parent: undefined,
        links: [],
        took: 40,
        attributes: { 'roomful.project_id': 'prj_one', 'roomful.subprotocol': 'roomful.v1.json' },
      },
    ])
  })

  it('of a client that may not come in tells why, and takes nothing from a token that was not accepted', async () => {
    const client = await test.open()
    client.send({ t: 'hello', project_id: 'prj_one', token: await test.forged({ traceparent: BACKEND }) })
    await client.closed
    expect(tracer.spans).toMatchObject([
      {
        parent: undefined,
        failed: undefined,
        attributes: { 'roomful.result': 'unauthenticated', 'roomful.close_code': 4001 },
      },
    ])
  })

  it('has failed when the service had no room', async () => {
    await test.close()
    await start({ maxSessions: 1 })
    await test.hello()
    const client = await test.open()
    client.send({ t: 'hello', project_id: 'prj_one', token: await token() })
    await client.closed
    expect(named('handshake')[1]).toMatchObject({
      failed: 'overloaded',
      attributes: { 'roomful.result': 'overloaded', 'roomful.close_code': 1013 },
    })
  })
})

describe('the span of a join', () => {
  it('tells of a refusal, whatever its cause', async () => {
    const { client } = await test.join('one', await test.token({ rooms: ['arena'] }))
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
    await client.next('error')
    client.send({ t: 'join', request_id: 3, room_type: 'chess', options: { key: 'one' } })
    await client.next('error')
    expect(named('join').map(({ attributes }) => attributes['roomful.result'])).toEqual([
      'joined',
      'already_joined',
      'forbidden',
    ])
    expect(tracer.open).toEqual([])
  })

  it('ends when no one answers', async () => {
    await test.close()
    await start({ joinWaitMs: 3000 })
    test.owner.deliver = () => {}
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await expect.poll(() => sent.length).toBe(1)
    for (let second = 0; second < 5; second++) test.clock.advance(1000)
    expect(await client.next('error')).toMatchObject({ code: 'room_unavailable' })
    expect(named('join')).toMatchObject([
      { failed: 'room_unavailable', attributes: { 'roomful.result': 'room_unavailable' } },
    ])
  })

  it('ends when the client gives up', async () => {
    test.owner.deliver = () => {}
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await expect.poll(() => sent.length).toBe(1)
    client.send({ t: 'goodbye' })
    await expect.poll(() => tracer.open).toEqual([])
    expect(named('join')).toMatchObject([{ attributes: { 'roomful.result': 'abandoned' } }])
  })

  it('is none for messages', async () => {
    const { client } = await test.join('one', await token())
    const before = tracer.spans.length
    client.send({ t: 'message', room_id: 'arena:one', type: 'count', data: 1, ref: 1, settled: 0 })
    await client.next('ack')
    expect(tracer.spans).toHaveLength(before)
    expect(sent.at(-1)).not.toHaveProperty('traceparent')
  })
})
