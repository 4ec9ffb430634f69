import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { RawClient } from './raw-client.ts'

/** What one process of clients is to do. */
interface CrowdWish {
  readonly wsUrl: string
  readonly projectId: string
  readonly token: string
  readonly sockets: number
  /** So many of them join this room (`type:key`), and hear its events. */
  readonly members: number
  readonly roomId: string
}

/** What became of the clients so far. */
interface CrowdReport {
  /** Those that were let in. */
  readonly welcome: number
  /** Those of them whose connection has ended. */
  readonly lost: number
  /** Events of the room that its members were told, of all of them together. */
  readonly heard: number
}

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
  spawn(process.execPath, ['--import', 'tsx', import.meta.filename, JSON.stringify(wish)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })

/** How many handshakes are under way at once. */
const AT_ONCE = 25

/** What one process does: it opens its websockets, says hello on each, and then does nothing but what a websocket must. */
async function beIdle({ projectId, token, roomId, members, wsUrl, sockets }: CrowdWish): Promise<void> {
  const report = { welcome: 0, lost: 0, heard: 0 }
  const [roomType, key] = roomId.split(':')
  /** Resolves with true once the client is welcome, and joined where it is to be a member. False: the server refused it. */
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
  // Each is tried until it is in: on a busy machine, a handshake may take longer than it may.
  const connectOneByOne = async (): Promise<void> => {
    while (next < sockets) {
      const index = next++
      while (!(await connectOne(index)));
    }
  }
  process.on('message', () => void process.send?.(report))
  process.on('disconnect', () => process.exit(0))
  await Promise.all(Array.from({ length: AT_ONCE }, connectOneByOne))
  process.send?.(report)
}

if (process.argv[1] === import.meta.filename) await beIdle(JSON.parse(process.argv[2]!))
