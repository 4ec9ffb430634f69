import { setTimeout as sleep } from 'node:timers/promises'
import { type Child, describeExit } from '../../deploy/local/processes.ts'

/** Pause before an ended process is started again, as in the systemd units. */
const RESTART_MS = 1000
const LOOK_MS = 500
/** A node that has not answered `/readyz` after this is not live. */
const READY_MS = 2000
/** Time that ended processes have until all of them are ready. */
const RECOVERY_MS = 20_000

/** The end of one process, which no one asked for. */
export interface ProcessEnd {
  /** Milliseconds since 1970. */
  readonly at: number
  readonly node: string
  readonly pid: number
  /** `exit code 1`, or a signal. */
  readonly how: string
}

/** Starts ended processes again, counts their ends, and looks whether all of them are ready. */
export class Supervisor {
  readonly ends: ProcessEnd[] = []
  readonly #adminUrls: readonly string[]
  readonly #looks: { readonly at: number; readonly live: boolean }[] = []
  readonly #restart: boolean
  readonly #onEnd: (end: ProcessEnd) => void
  readonly #over = new AbortController()

  constructor(parts: {
    readonly processes: readonly Child[]
    readonly adminUrls: readonly string[]
    /** False: an ended process stays ended. */
    readonly restart: boolean
    readonly onEnd: (end: ProcessEnd) => void
  }) {
    this.#adminUrls = parts.adminUrls
    this.#restart = parts.restart
    this.#onEnd = parts.onEnd
    for (const child of parts.processes) void this.#keep(child)
    void this.#look()
  }

  /**
   * The share of the looks after the second end that found all processes ready, from 0 to 1. They begin when all are ready again, at most
   * 20 s after that end. With fewer ends, the last one counts instead.
   */
  get liveAfterwards(): number {
    const from = this.ends[1]?.at ?? this.ends.at(-1)?.at ?? 0
    const later = this.#looks.filter(({ at }) => at > from)
    const first = later.findIndex(({ at, live }) => live || at > from + RECOVERY_MS)
    const afterwards = first < 0 ? [] : later.slice(first)
    return afterwards.filter(({ live }) => live).length / Math.max(1, afterwards.length)
  }

  /** Waits until all processes are ready, at most 20 s, and stops to start them again. */
  async stop(): Promise<void> {
    const deadline = Date.now() + RECOVERY_MS
    while (this.#restart && !(await this.#isLive()) && Date.now() < deadline) await sleep(LOOK_MS)
    this.#looks.push({ at: Date.now(), live: await this.#isLive() })
    this.#over.abort()
  }

  async #keep(child: Child): Promise<void> {
    let { pid = 0 } = child
    for (;;) {
      const exit = await child.ended
      if (this.#over.signal.aborted) return
      const end = { at: Date.now(), node: child.name, pid, how: describeExit(exit) }
      this.ends.push(end)
      this.#onEnd(end)
      if (!this.#restart) return
      await sleep(RESTART_MS)
      if (this.#over.signal.aborted) return
      const starting = child.start()
      pid = child.pid ?? 0
      // One that ends before it is ready has ended, as the loop sees.
      await starting.catch(() => undefined)
    }
  }

  async #look(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const at = Date.now()
      this.#looks.push({ at, live: await this.#isLive() })
      await sleep(LOOK_MS)
    }
  }

  async #isLive(): Promise<boolean> {
    const ready = await Promise.all(
      this.#adminUrls.map((url) =>
        fetch(`${url}/readyz`, { signal: AbortSignal.timeout(READY_MS) }).then(
          ({ status }) => status === 200,
          () => false,
        ),
      ),
    )
    return ready.every(Boolean)
  }
}
