import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** What one process of clients is to do. */
export interface CrowdWish {
  readonly wsUrl: string
  readonly projectId: string
  readonly token: string
  readonly sockets: number
  /** So many of them join this room (`type:key`), and hear its events. */
  readonly members: number
  readonly roomId: string
}

/** What became of the clients so far. */
export interface CrowdReport {
  /** Those that were let in. */
  readonly welcome: number
  /** Those of them whose connection has ended. */
  readonly lost: number
  /** Events of the room that its members were told, of all of them together. */
  readonly heard: number
}

const SCRIPT = fileURLToPath(new URL('idle-clients-process.ts', import.meta.url))

/** Very many clients that are connected and silent, in processes of their own: each has a limit of file descriptors. */
export class IdleClients {
  readonly #children: readonly ChildProcess[]

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children
  }

  /** Resolves when every client is in. */
  static async connect(wish: CrowdWish, processes: number): Promise<IdleClients> {
    const share = Math.ceil(wish.sockets / processes)
    const wishes = Array.from({ length: processes }, (_, index) => ({
      ...wish,
      sockets: Math.min(share, wish.sockets - index * share),
      members: index === 0 ? wish.members : 0,
    }))
    const clients = new IdleClients(wishes.map(launch))
    await Promise.all(clients.#children.map((child) => once(child, 'message')))
    return clients
  }

  /** Of all together, at this moment. */
  async report(): Promise<CrowdReport> {
    const reports = await Promise.all(
      this.#children.map(async (child) => {
        const answer = once(child, 'message')
        child.send('report')
        return (await answer)[0] as CrowdReport
      }),
    )
    const sum = (of: keyof CrowdReport) => reports.reduce((total, report) => total + report[of], 0)
    return { welcome: sum('welcome'), lost: sum('lost'), heard: sum('heard') }
  }

  /** Ends all of them at once. */
  async close(): Promise<void> {
    await Promise.all(
      this.#children.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return
        const ended = once(child, 'exit')
        child.kill('SIGKILL')
        await ended
      }),
    )
  }
}

const launch = (wish: CrowdWish): ChildProcess =>
  spawn(process.execPath, ['--import', 'tsx', SCRIPT, JSON.stringify(wish)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
