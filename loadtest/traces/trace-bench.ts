import { connect } from 'roomful/client'
import { choosePorts } from '../../deploy/local/ports.ts'
import type counter from '../../examples/counter/room.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { peekToken } from '../../shared/tokens.ts'
import { TraceCollector } from '../../test/support/trace-collector.ts'
import { ServerUnderTest } from '../bench/server-under-test.ts'
import { Processes } from '../figures/processes.ts'
import { Callers } from '../tokens/callers.ts'

const HOST = '127.0.0.1'
const CALLERS = 8

/** What is measured: a request for a token at control; at the node a handshake, the join of a room that is made for it, and the end of both. */
export type Work = 'token' | 'join'

/** How many spans one of them has. */
export const SPANS: Readonly<Record<Work, number>> = { token: 1, join: 6 }

/** A control process and a node of their own. */
interface Side {
  readonly control: ServerUnderTest
  readonly call: { readonly url: string; readonly credential: string; readonly project_id: string }
  readonly ws_url: string
  readonly metrics_url: string
}

/** Two services on one Redis, one that is traced and one that is not, and whoever calls both. */
export class TraceBench {
  readonly #collector: TraceCollector
  #collected = 0
  #expected = 0
  readonly #processes: Processes
  readonly #sides: { readonly [traced in 'off' | 'on']: Side }
  readonly #callers = new Callers(CALLERS)
  #rooms = 0

  private constructor(processes: Processes, collector: TraceCollector, off: Side, on: Side) {
    this.#processes = processes
    this.#collector = collector
    this.#sides = { off, on }
  }

  /** Resolves when everything serves. `folder` takes what the processes leave behind. */
  static async start(folder: string): Promise<TraceBench> {
    const processes = new Processes(folder)
    const collector = await TraceCollector.start()
    const ports = await choosePorts({ controls: 2, nodes: 2, free: true })
    await processes.redis(ports.redis, folder)
    const side = async (index: number, tracing: Record<string, string>): Promise<Side> => {
      const operator_token = randomToken(systemRandom, 32)
      const internal_token = randomToken(systemRandom, 32)
      const redis_url = `redis://${HOST}:${ports.redis}`
      const url = `http://${HOST}:${ports.controls[index]}`
      const { websocket, admin } = ports.nodes[index]!
      const control = await ServerUnderTest.start('../tokens/control-server.ts', {
        BENCH_REDIS_URL: redis_url,
        BENCH_KEY_PREFIX: `bench-${index}:`,
        BENCH_OPERATOR_TOKEN: operator_token,
        BENCH_INTERNAL_TOKEN: internal_token,
        BENCH_PORT: String(ports.controls[index]),
        ...tracing,
      })
      await processes.roomful(`node-${index}`, 'dataplane', {
        REDIS_URL: redis_url,
        KEY_PREFIX: `bench-${index}:`,
        CONTROL_URL: url,
        INTERNAL_TOKEN: internal_token,
        WS_PORT: String(websocket),
        ADMIN_PORT: String(admin),
        // Each caller makes a room after the other, with one token.
        JOINS_PER_SECOND: '100000',
        NEW_ROOMS_PER_MINUTE: '0',
        MAX_ROOMS_PER_PROJECT: '0',
        ...tracing,
      })
      const project = await fetch(`${url}/projects`, {
        method: 'POST',
        headers: { authorization: `Bearer ${operator_token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ name: 'bench' }),
      })
      const { id } = (await project.json()) as { id: string }
      return {
        control,
        call: { url, credential: operator_token, project_id: id },
        ws_url: `ws://${HOST}:${websocket}`,
        metrics_url: `http://${HOST}:${admin}/metrics`,
      }
    }
    // Nothing is dropped: what is sent is what is measured.
    const on = {
      OTEL_TRACES_EXPORTER: 'otlp',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_MAX_QUEUE_SIZE: '1000000',
      OTEL_BSP_SCHEDULE_DELAY: '500',
    }
    return new TraceBench(processes, collector, await side(0, {}), await side(1, on))
  }

  /** Does one kind of work for `seconds`; resolves with the CPU time of the process that did it, milliseconds for one piece. */
  async measure(work: Work, traced: 'off' | 'on', seconds: number): Promise<number> {
    const side = this.#sides[traced]
    this.#forget()
    if (work === 'token') {
      const before = (await side.control.sample()).cpu_us
      const { tokens } = await this.#callers.run(side.call, seconds)
      if (traced === 'on') this.#expected += tokens * SPANS.token
      return ((await side.control.sample()).cpu_us - before) / 1000 / tokens
    }
    const before = await nodeCpu(side)
    const joins = await this.#joins(side, seconds)
    if (traced === 'on') this.#expected += joins * SPANS.join + SPANS.token
    return ((await nodeCpu(side)) - before) / joins
  }

  /** How many spans were sent by now, and how many have ended. */
  get spans(): { readonly sent: number; readonly ended: number } {
    return { sent: this.#collected + this.#collector.spans.length, ended: this.#expected }
  }

  async close(): Promise<void> {
    this.#callers.close()
    await Promise.all([this.#sides.off, this.#sides.on].map(({ control }) => control.stop()))
    await this.#processes.close()
    await this.#collector.close()
  }

  /** The collector keeps all it is sent, which would slow down the callers. */
  #forget(): void {
    this.#collected += this.#collector.spans.length
    this.#collector.requests.length = 0
    this.#collector.spans.length = 0
  }

  /** How many there were. */
  async #joins({ call, ws_url }: Side, seconds: number): Promise<number> {
    const { token } = JSON.parse(await this.#callers.ask(call)) as { token: string }
    const { project_id: projectId } = peekToken(token)
    const end = performance.now() + seconds * 1000
    let joins = 0
    const one = async (): Promise<void> => {
      while (performance.now() < end) {
        const client = await connect(ws_url, { projectId, token })
        await client.join<typeof counter>('counter', { key: `room-${this.#rooms++}` })
        client.close()
        joins += 1
      }
    }
    await Promise.all(Array.from({ length: CALLERS }, one))
    return joins
  }
}

/** Since the start of the node, milliseconds. */
async function nodeCpu({ metrics_url }: Side): Promise<number> {
  const text = await (await fetch(metrics_url)).text()
  const [, seconds] = /^service_process_cpu_seconds_total (\S+)$/m.exec(text) ?? []
  if (seconds === undefined) throw new Error(`${metrics_url} says nothing of the node’s CPU time`)
  return Number(seconds) * 1000
}
