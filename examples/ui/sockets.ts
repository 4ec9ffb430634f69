/** Cuts the page off the network on purpose, to show what a reconnect looks like. */
export interface Scissors {
  /** Breaks every open websocket of the page, and lets none through for `outage_ms`. */
  cut(outage_ms: number): void
}

/**
 * For demonstrations: puts a WebSocket in the page's place that remembers its instances. Call it before anything connects.
 * The sockets are closed as a lost network would close them, without a goodbye.
 */
export function watchSockets(page: { WebSocket: typeof WebSocket }, now: () => number): Scissors {
  const open = new Set<WebSocket>()
  let blocked_until = 0

  class WatchedSocket extends page.WebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols)
      open.add(this)
      this.addEventListener('close', () => open.delete(this))
      if (now() < blocked_until) this.close()
    }
  }
  page.WebSocket = WatchedSocket

  return {
    cut(outage_ms) {
      blocked_until = now() + outage_ms
      for (const socket of open) socket.close(CUT, 'cut for a demonstration')
    },
  }
}

/** A close code of the page's own: not the 1000 of a goodbye, so the session waits to be resumed. */
const CUT = 3001
