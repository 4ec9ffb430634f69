import { pino } from 'pino'
import { type RunningControl, startControl } from '../../control/main.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'

/** A control plane for the benchmark, outside the process that is measured. */
export class BenchControl {
  readonly internal_token = 'bench-internal-token'
  readonly #control: RunningControl
  readonly #project_id: string

  private constructor(control: RunningControl, project_id: string) {
    this.#control = control
    this.#project_id = project_id
  }

  get url(): string {
    return this.#control.url
  }

  static async start(): Promise<BenchControl> {
    const control = await startControl({
      config: {
        control_port: 0,
        internal_token: 'bench-internal-token',
      },
      store: memoryStore({ clock: systemClock }),
      log: pino({ level: 'silent' }),
      clock: systemClock,
      random: systemRandom,
    })
    const project = await post(`${control.url}/projects`, { name: 'bench' })
    return new BenchControl(control, project.id as string)
  }

  /** What a client says hello with. */
  async credentials(): Promise<{ project_id: string; token: string }> {
    const project_id = this.#project_id
    const { token } = await post(`${this.url}/tokens`, { project_id, ttl_seconds: 86_400 })
    return { project_id, token: token as string }
  }

  stop(): Promise<void> {
    return this.#control.close()
  }
}

async function post(url: string, body: object): Promise<Record<string, unknown>> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${url} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Record<string, unknown>
}
