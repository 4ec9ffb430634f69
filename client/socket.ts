/** The part of the browser's WebSocket that the SDK uses; that of the package `ws` has it too. */
export interface WebSocketLike {
  binaryType: string
  /** Handlers are assigned; what they may have been before does not matter. */
  onopen: unknown
  onmessage: unknown
  onclose: unknown
  onerror: unknown
  send(data: Uint8Array<ArrayBuffer>): void
  close(code?: number, reason?: string): void
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

/** The `WebSocket` of the platform, or of the package `ws` where the platform has none (Node before 22). */
export async function platformWebSocket(): Promise<WebSocketConstructor> {
  if (typeof WebSocket === 'function') return WebSocket
  // Not a literal, so that bundlers for browsers do not look for it.
  const name = 'ws'
  const found: { WebSocket: WebSocketConstructor } = await import(
    /* @vite-ignore */ /* webpackIgnore: true */ name
  )
  return found.WebSocket
}
