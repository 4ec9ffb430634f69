import { pino } from 'pino'
import { Registry } from 'prom-client'
import type { ControlDeps } from '../../control/app.ts'
import { Keyring } from '../../control/keyring.ts'
import { controlMetrics } from '../../control/metrics.ts'
import { systemRandom } from '../../shared/random.ts'
import { noTracer } from '../../shared/tracing/tracer.ts'

/** Parts of a control plane for one machine, without operators, nodes and notices. */
export function controlDeps({ store, clock }: Pick<ControlDeps, 'store' | 'clock'>): ControlDeps {
  const registry = new Registry()
  return {
    store,
    clock,
    keyring: new Keyring('the secret of the keyring', systemRandom),
    random: systemRandom,
    log: pino({ level: 'silent' }),
    exposition: registry,
    metrics: controlMetrics(registry),
    tracer: noTracer,
    operatorTokens: [],
    openTo: 'this machine',
    nodes: { call: async () => ({}), adminPages: async () => [] },
    internalToken: undefined,
    notifySecrets: [],
    requireKeyId: false,
    tokenRate: { perSecond: 1000, burst: 1000 },
    setLogLevel: () => undefined,
    draining: () => false,
    clockWrong: () => undefined,
    dataLost: async () => false,
  }
}
