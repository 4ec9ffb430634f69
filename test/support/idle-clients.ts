import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { RawClient } from './raw-client.ts'

/** Options of the clients of one process. */
interface CrowdOptions {
  readonly wsUrl: string
  readonly projectId: string
  readonly token: string
  readonly sockets: number
  /** Number of clients that join the room. */
  readonly members: number
  /** `type:key`. */
  readonly roomId: string
}

/** Counts of all clients of a process. */
interface CrowdReport {
  /** Clients with a `welcome`. */
  readonly welcome: number
  /** Clients with a `welcome` whose connection has ended. */
  readonly lost: number
  /** Events of the room, summed over its members. */
  readonly heard: number
}

/** Many connected, silent clients in several processes, because each process has a limit of file descriptors. */
export class IdleClients {
  readonly #children: readonly ChildProcess[]

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children
  }

  /** Resolves when every client has its `welcome`, and every member its seat. */
  static async connect(crowd: CrowdOptions, processes: number): Promise<IdleClients> {
    const share = Math.ceil(crowd.sockets / processes)
    const crowds = Array.from({ length: processes }, (_, index) => ({
      ...crowd,
      sockets: Math.min(share, crowd.sockets - index * share),
      members: index === 0 ? crowd.members : 0,
    }))
    const clients = new IdleClients(crowds.map(launch))
    await Promise.all(clients.#children.map((child) => once(child, 'message')))
    return clients
  }

  /** Returns the sums over all processes. */
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

  /** Ends all processes with SIGKILL. */
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

const launch = (crowd: CrowdOptions): ChildProcess =>
  spawn(process.execPath, ['--import', 'tsx', import.meta.filename, JSON.stringify(crowd)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })

/** Number of concurrent handshakes. */
const CONCURRENT = 25

/** The program of one process: opens the websockets and sends hello on each. After that, the clients only answer pings. */
async function beIdle({ projectId, token, roomId, members, wsUrl, sockets }: CrowdOptions): Promise<void> {
  const report = { welcome: 0, lost: 0, heard: 0 }
  const [roomType, key] = roomId.split(':')
  /** Resolves with true when the client has its `welcome`, and its seat if it is a member. False: the server refused it. */
  const connectOne = async (index: number): Promise<boolean> => {
    const client = await RawClient.open(wsUrl).catch(() => undefined)
    let isIn = await client?.ask({ t: 'hello', project_id: projectId, token }, ({ t }) => t === 'welcome')
    if (isIn && index < members) {
      const join = { t: 'join', request_id: 1, room_type: roomType, options: { key } }
      isIn = await client?.ask(join, ({ t }) => t === 'joined')
    }
    if (!client || !isIn) {
      client?.cut()
      return false
    }
    report.welcome += 1
    client.onMessage = ({ t }) => {
      if (t === 'event') report.heard += 1
    }
    void client.closed.then(() => {
      report.lost += 1
    })
    return true
  }
  let next = 0
  // Repeats a refused handshake: on a busy machine, it may exceed the time limit.
  const connectOneByOne = async (): Promise<void> => {
    while (next < sockets) {
      const index = next++
      while (!(await connectOne(index)));
    }
  }
  process.on('message', () => void process.send?.(report))
  process.on('disconnect', () => process.exit(0))
  await Promise.all(Array.from({ length: CONCURRENT }, connectOneByOne))
  process.send?.(report)
}

if (process.argv[1] === import.meta.filename) await beIdle(JSON.parse(process.argv[2]!))
