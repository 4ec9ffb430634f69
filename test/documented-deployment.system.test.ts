import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, vi } from 'vitest'
import {
  CONTROLS,
  DocumentedDeployment,
  GROUPS,
  NODES,
  PATIENCE,
  type Part,
  SENTINELS,
} from './support/machines/documented.ts'
import { createGame } from './support/machines/game.ts'
import { whyNoMachines } from './support/machines/machines.ts'

const missing = whyNoMachines()
if (missing) process.stderr.write(`skipped: the documented deployment does not run, since ${missing}\n`)

describe.skipIf(missing !== undefined)('the documented deployment', () => {
  const ROOMFUL: readonly Part[] = [...CONTROLS, ...NODES]
  const ALL: readonly Part[] = GROUPS.flat()
  let deployment: DocumentedDeployment
  let game: Awaited<ReturnType<typeof createGame>>
  /** Number of restarts of each process of roomful, by its name. */
  const restarts = new Map(ROOMFUL.map((part) => [part as string, 0]))

  beforeAll(async () => {
    deployment = await DocumentedDeployment.start(inject('clusterRooms'))
    await deployment.settled()
    game = await createGame(deployment)
    await observed()
  })
  afterAll(async () => {
    game?.close()
    await deployment?.close()
  })

  // Each test needs the deployment of the test before it.
  let failed = ''
  beforeEach(({ task, skip, onTestFailed }) => {
    skip(failed !== '', `after the failure of "${failed}"`)
    onTestFailed(() => {
      failed = task.name
    })
  })

  const start = async (...parts: readonly Part[]): Promise<void> => {
    await deployment.start(...parts)
    for (const part of parts) if (restarts.has(part)) restarts.set(part, restarts.get(part)! + 1)
  }

  const expectKept = async (): Promise<void> => {
    await deployment.settled()
    await game.expectKept()
  }

  /** Resolves when Prometheus has noticed all restarts. */
  const observed = () =>
    vi.waitFor(async () => {
      const seen = await deployment.query('changes(service_process_start_time_seconds[30m])')
      const names = seen.map(({ metric, value }) => [metric.instance!.split(':')[0], value] as const)
      expect(new Map(names)).toEqual(restarts)
    }, PATIENCE)

  /** Names of all alerts that were sent until now. */
  const alerts = async (): Promise<string[]> => {
    const sent = await deployment.query(
      'group by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))',
    )
    return sent.map(({ metric }) => metric.alertname!)
  }

  it.each<Part>(['prometheus', 'balancer', ...CONTROLS, ...SENTINELS, ...NODES, 'redis-3', 'redis-2'])(
    'keeps everything when %s restarts',
    async (part) => {
      await deployment.stop(part)
      await start(part)
      await expectKept()
    },
  )

  it('keeps everything when the master of Redis crashes, and returns after its successor was promoted', async () => {
    const crashed = await deployment.master()
    await deployment.kill(crashed)
    await vi.waitFor(async () => expect(await deployment.master()).not.toBe(crashed), PATIENCE)
    await start(crashed)
    await expectKept()
  })

  it('keeps everything when all processes end in order, and start again', async () => {
    game.notices.accept()
    await game.notices.send('second')
    await game.bell.set('while nothing runs')
    await observed()
    for (const part of ALL.toReversed()) await deployment.stop(part)
    for (const group of GROUPS) await start(...group)
    await expectKept()
    game.notices.accept()
    await game.bell.expectRung()
  })

  it('has sent no alert so far', async () => {
    await observed()
    expect(await alerts()).toEqual([])
  })

  it('keeps everything when all processes are killed at the same time, and start again', async () => {
    await game.notices.send('third')
    await game.bell.set('after a power cut')
    await game.rooms.saved()
    await deployment.written()
    await deployment.kill(...ALL)
    for (const group of GROUPS) await start(...group)
    await expectKept()
    game.notices.accept()
    await game.bell.expectRung()
  })

  it('delivers the notices when the backend accepts them, and matches the ticket', async () => {
    await game.tickets.expectMatched()
    await game.notices.expectDelivered()
  })

  it('has sent one alert, about processes that restart repeatedly', async () => {
    await observed()
    await vi.waitFor(async () => expect(await alerts()).toEqual(['RoomfulProcessRestarts']), PATIENCE)
  })
})
