import { Agent, request } from 'node:http'
import { performance } from 'node:perf_hooks'
import { type Summary, summarize } from '../figures/statistics.ts'

/** A request for a token. */
export interface TokenCall {
  /** Where `POST /tokens` is, such as `http://127.0.0.1:3000`. */
  readonly url: string
  readonly credential: string
  readonly project_id: string
}

/** What callers got in a window. */
export interface Served {
  readonly tokens: number
  readonly seconds: number
  /** From a request until the whole of its answer, milliseconds. */
  readonly latency: Summary
  /** The busy share of the callers' own event loop: near 1, they were what was measured. */
  readonly callers_busy: number
}

/** Callers that ask for tokens one after the other, each over a connection of its own that it keeps. */
export class Callers {
  readonly #agent: Agent
  readonly #count: number

  constructor(count: number) {
    this.#count = count
    this.#agent = new Agent({ keepAlive: true, maxSockets: count })
  }

  /** Asks for `seconds`. Rejects with the answer when one is not a token. */
  async run(call: TokenCall, seconds: number): Promise<Served> {
    const latencies: number[] = []
    const busy = performance.eventLoopUtilization()
    const began = performance.now()
    const end = began + seconds * 1000
    const one = async (): Promise<void> => {
      for (let begun = performance.now(); begun < end; begun = performance.now()) {
        await this.ask(call)
        latencies.push(performance.now() - begun)
      }
    }
    await Promise.all(Array.from({ length: this.#count }, one))
    return {
      tokens: latencies.length,
      seconds: (performance.now() - began) / 1000,
      latency: summarize(latencies),
      callers_busy: performance.eventLoopUtilization(busy).utilization,
    }
  }

  /** The answer that has one token. */
  ask({ url, credential, project_id }: TokenCall): Promise<string> {
    const body = JSON.stringify({ project_id, sub: 'player-7' })
    const headers = {
      authorization: `Bearer ${credential}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    }
    return new Promise((resolve, reject) => {
      const asking = request(`${url}/tokens`, { method: 'POST', agent: this.#agent, headers }, (response) => {
        let text = ''
        response.setEncoding('utf8')
        response.on('data', (chunk: string) => {
          text += chunk
        })
        response.on('error', reject)
        response.on('end', () => {
          if (response.statusCode === 200 && text.includes('"token":"v4.public.')) resolve(text)
          else reject(new Error(`POST /tokens answered ${response.statusCode}: ${text}`))
        })
      })
      asking.on('error', reject)
      asking.end(body)
    })
  }

  close(): void {
    this.#agent.destroy()
  }
}
