import type { WebSocketConstructor } from 'roomful/client'
import { WebSocket } from 'ws'

/** WebSocket class of one client of the SDK. Its first connection goes to `firstUrl`, every later one to the load balancer. */
export function playerSocket(firstUrl: string, frontUrl: string) {
  let next = firstUrl
  const open = new Set<WebSocket>()
  class PlayerSocket extends WebSocket {
    constructor(_url: string, protocols: string[]) {
      super(next, protocols)
      next = frontUrl
      open.add(this)
      this.once('close', () => open.delete(this))
    }
  }
  return {
    WebSocket: PlayerSocket as unknown as WebSocketConstructor,
    /** Ends the connection as a dead network does. */
    cut: () => {
      for (const socket of open) socket.terminate()
    },
  }
}
