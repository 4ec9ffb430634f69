import { WebSocket } from 'ws'
import type { CrowdReport, CrowdWish } from './idle-clients.ts'

/** The process of `IdleClients`: opens many websockets, says hello on each, and then does nothing but what a websocket must. */

/** How many handshakes are under way at once. */
const AT_ONCE = 25

const wish = JSON.parse(process.argv[2]!) as CrowdWish
const report = { welcome: 0, lost: 0, heard: 0 }
let next = 0

const say = (report: CrowdReport): void => void process.send?.(report)
const connectAll = (): Promise<unknown> => Promise.all(Array.from({ length: AT_ONCE }, connectOneByOne))

/** Each is tried until it is in: on a busy machine, a handshake may take longer than it may. */
async function connectOneByOne(): Promise<void> {
  while (next < wish.sockets) {
    const index = next++
    while (!(await connectOne(index)));
  }
}

/** Resolves with true once the client is welcome (and joined, where it is to be a member), with false when it is sent away before. */
function connectOne(index: number): Promise<boolean> {
  const { projectId, token, roomId, members, wsUrl } = wish
  const [roomType, key] = roomId.split(':')
  let isIn = false
  return new Promise((resolve) => {
    const enter = (): void => {
      isIn = true
      report.welcome += 1
      resolve(true)
    }
    const socket = new WebSocket(wsUrl, ['roomful.v1.json'], { perMessageDeflate: false })
    socket.once('open', () => socket.send(JSON.stringify({ t: 'hello', project_id: projectId, token })))
    socket.on('message', (data) => {
      const { t } = JSON.parse(String(data)) as { t: string }
      if (t === 'welcome' && index < members)
        socket.send(JSON.stringify({ t: 'join', ref: 1, room_type: roomType, options: { key } }))
      else if (t === 'welcome' || t === 'joined') enter()
      else if (t === 'error') socket.close()
      if (t === 'event') report.heard += 1
    })
    socket.on('error', () => undefined)
    socket.once('close', () => {
      if (isIn) report.lost += 1
      resolve(false)
    })
  })
}

process.on('message', () => say(report))
process.on('disconnect', () => process.exit(0))
await connectAll()
say(report)
