/** A code of the page's own: not the 1000 of a goodbye, so that the session waits to be resumed. */
const CUT = 3001

/** Websockets that the page can cut off from the network, to show what a reconnect looks like. */
export interface Scissors {
  /** What to connect with instead of the browser's own. */
  readonly WebSocket: typeof WebSocket
  /** Breaks every open websocket, and lets none through for `outage_ms`. */
  cut(outageMs: number): void
}

/** Makes a WebSocket that remembers its instances. Cut ones close without a goodbye, as a lost network would have it. */
export function cuttableSockets(now: () => number): Scissors {
  const open = new Set<WebSocket>()
  let blockedUntil = 0

  class CuttableSocket extends WebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols)
      open.add(this)
      this.addEventListener('close', () => open.delete(this))
      if (now() < blockedUntil) this.close()
    }
  }

  return {
    WebSocket: CuttableSocket,
    cut(outageMs) {
      blockedUntil = now() + outageMs
      for (const socket of open) socket.close(CUT, 'cut for a demonstration')
    },
  }
}
