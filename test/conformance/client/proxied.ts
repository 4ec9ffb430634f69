import { expect, onTestFinished, vi } from 'vitest'
import { startService, type TestService } from '../../support/cluster.ts'
import { type FrameFault, ONE_OF, TIMED, type TimedFault } from './faults.ts'
import { FaultProxy, type ProxyOptions } from './proxy.ts'

export const PATIENT = { timeout: 180_000 }

/** A service with a project, for tests with a proxy between it and a client. */
export class ProxiedService {
  readonly projectId: string
  readonly #service: TestService

  private constructor(service: TestService, projectId: string) {
    this.#service = service
    this.projectId = projectId
  }

  static async start(): Promise<ProxiedService> {
    const service = await startService({ node: { heartbeatSeconds: 1 } })
    const { id = '' } = await service.call('POST', '/projects', { name: 'conformance' })
    return new ProxiedService(service, id)
  }

  /** Opens a proxy that forwards to the service. It ends with the test. */
  async proxy(options: Partial<ProxyOptions> = {}): Promise<FaultProxy> {
    const { projectId } = this
    const token = async (sub: string) => {
      const { token = '' } = await this.#service.call('POST', '/tokens', { project_id: projectId, sub })
      return { project_id: projectId, token }
    }
    const { wsUrl } = this.#service
    const proxy = await FaultProxy.open({ cluster: { nodes: [wsUrl, wsUrl], token }, seed: 1, ...options })
    onTestFinished(() => proxy.close())
    return proxy
  }

  close(): Promise<void> {
    return this.#service.close()
  }
}

/** Injects each fault once, except those that end a node. Waits until the clients owe no action. */
export async function strikeAll(proxy: FaultProxy): Promise<void> {
  for (const fault of Object.keys(ONE_OF) as FrameFault[]) {
    // The proxy does not drop a flush with an event or a member. The fault then applies to the next flush.
    const strikes = () => {
      if (!proxy.struck.has(fault)) proxy.strikeFrame(fault)
      expect(proxy.struck.get(fault)).toBe(1)
    }
    await vi.waitFor(strikes, { ...PATIENT, interval: 500 })
  }
  const here: TimedFault[] = TIMED.filter((fault) => fault !== 'kill' && fault !== 'drain')
  for (const fault of here) await vi.waitFor(() => expect(proxy.strike(fault)).toBe(true), PATIENT)
  await proxy.rest()
}
