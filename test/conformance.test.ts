import { afterAll, beforeAll, describe, it } from 'vitest'
import { cases, holds, runsAlone } from './conformance/run.ts'
import { startService, type TestService } from './support/cluster.ts'

/** Cases that wait for seconds run in the system tests only. */
const quick = cases.filter(({ kind }) => kind === 'quick')

describe('the protocol, with the store in memory', () => {
  let service: TestService
  beforeAll(async () => {
    service = await startService()
  })
  afterAll(() => service?.close())

  for (const one of quick) it(one.name, { concurrent: !runsAlone(one) }, () => holds(one, service))
})
