import { connect } from 'roomful/client'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type counter from '../examples/counter/room.ts'
import { startService, type TestService } from './support/service.ts'
import { isPatch, tamperedSocket } from './support/tampered-socket.ts'

describe('drift of a client state', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService()
  })
  afterAll(() => service.close())

  /** A player with a sound connection and one, in the same room, whose frames pass `tamper`. */
  async function twoPlayers(key: string, tamper: (frame: Buffer) => Buffer | undefined) {
    const { project_id: projectId, token } = await service.login()
    const sound = await connect(service.ws_url, { projectId, token })
    const { WebSocket } = tamperedSocket(tamper)
    const odd = await connect(service.ws_url, { projectId, token, WebSocket })
    return {
      sound: await sound.join<typeof counter>('counter', { key }),
      odd: await odd.join<typeof counter>('counter', { key }),
      stats: () => odd.stats,
      close: () => {
        sound.close()
        odd.close()
      },
    }
  }

  it('is noticed by checksum when a value arrives corrupted, healed by state.resync, and counted', async () => {
    let corrupt = false
    const players = await twoPlayers('corrupted', (frame) => {
      if (!corrupt || !isPatch(frame)) return frame
      corrupt = false
      const wrong = Buffer.from(frame)
      wrong[wrong.length - 1]! ^= 1
      return wrong
    })
    const before = await service.metric('service_resyncs_total{reason="checksum"}')
    await players.sound.send('inc', { by: 4 })
    corrupt = true
    await players.sound.send('inc', { by: 4 })

    await vi.waitFor(() => expect(players.odd.state).toEqual({ count: 8 }), 60_000)
    expect(players.stats().resyncs).toMatchObject({ checksum: 1, sequence: 0 })
    expect(await service.metric('service_resyncs_total{reason="checksum"}')).toBe(before + 1)
    players.close()
  })

  it('is noticed by sequence when a frame is lost, healed by state.resync, and counted', async () => {
    let lose = false
    const players = await twoPlayers('lost', (frame) => {
      if (!lose || !isPatch(frame)) return frame
      lose = false
      return undefined
    })
    const before = await service.metric('service_resyncs_total{reason="sequence"}')
    lose = true
    await players.sound.send('inc', { by: 1 })
    await players.sound.send('inc', { by: 1 })

    await vi.waitFor(() => expect(players.odd.state).toEqual({ count: 2 }), 60_000)
    expect(players.stats().resyncs).toMatchObject({ checksum: 0, sequence: 1 })
    expect(await service.metric('service_resyncs_total{reason="sequence"}')).toBe(before + 1)
    players.close()
  })
})
